"""State in a world of one process: items that it keeps or refuses, and an exception amid a commit."""

import random
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from ft_supervisor.worker.state import State, state


class Restart(BaseException):
    """Raised like worker.Restart, from a signal handler."""


def linear() -> nn.Linear:
    return nn.Linear(3, 2)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 3)).pow(2).sum().backward()
    optimizer.step()


def content(value: Any) -> Any:
    """A value in which tensors are lists, so that == compares everything."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: content(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(content, value))
    return value


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1, amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "tensor lr": lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(0.1)),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda optimizer: schedulers.StepLR(optimizer, 2),
    "multi_step": lambda optimizer: schedulers.MultiStepLR(optimizer, [1, 3]),
    "lambda": lambda optimizer: schedulers.LambdaLR(optimizer, lambda step: 0.9**step),
    "one_cycle": lambda optimizer: schedulers.OneCycleLR(optimizer, 1.0, total_steps=9, cycle_momentum=False),
    "cosine": lambda optimizer: schedulers.CosineAnnealingWarmRestarts(optimizer, 4),
    "sequential": lambda optimizer: schedulers.SequentialLR(
        optimizer, [schedulers.LinearLR(optimizer), schedulers.ExponentialLR(optimizer, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_goes_on_as_it_would_have(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model = linear()
    optimizer = make(model.parameters())
    kept = State(model=model, optimizer=optimizer, step=0)
    assert kept.sync() is None
    for kept.step in range(1, 4):
        one_step(model, optimizer)
        kept.commit()
    one_step(model, optimizer)
    expected = content([model.state_dict(), optimizer.state_dict()])
    for group in optimizer.param_groups:
        group["lr"] = 7.0
    assert kept.sync() == kept.step == 3
    one_step(model, optimizer)
    assert content([model.state_dict(), optimizer.state_dict()]) == expected


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_scheduler_goes_on_as_it_would_have(make: Callable[[torch.optim.Optimizer], Any]) -> None:
    def rates(many: int) -> list[float]:
        found = []
        for _ in range(many):
            one_step(model, optimizer)
            scheduler.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
        return found

    model = linear()
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    scheduler = make(optimizer)
    kept = State(model=model, optimizer=optimizer, scheduler=scheduler, step=0)
    kept.sync()
    rates(2)
    kept.commit()
    expected = rates(4)
    kept.sync()
    assert rates(4) == expected


def test_values_and_objects_of_ones_own() -> None:
    class Sampler:
        def __init__(self) -> None:
            self.at: dict[str, Any] = {"epoch": 1, "left": [3, 1, 2], "weights": torch.tensor([1.0, 2.0])}

        def state_dict(self) -> dict[str, Any]:
            return self.at

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at = state

    sampler = Sampler()
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    values = {
        "name": "ä",
        "nested": {1: (1, 2.5, None, True), "inf": float("inf"), "counts": np.int64(3)},
        "average": torch.arange(6, dtype=torch.bfloat16).view(2, 3).t(),
        "empty": torch.empty(0, 3),
        "flag": torch.tensor(True),
        "array": np.arange(4, dtype=np.uint8).reshape(2, 2)[:, ::-1],
    }
    kept = State(step=5, sampler=sampler, scaler=scaler, values=values)
    kept.sync()
    kept.commit()
    before = content({name: value for name, value in values.items() if name != "array"})
    array = np.array(values["array"])
    average = values["average"]
    sampler.at["left"].pop()
    sampler.at["weights"].zero_()
    values["average"].zero_()  # type: ignore[attr-defined]
    scaler.load_state_dict({**scaler.state_dict(), "scale": 1.0})
    kept.values = {**values, "name": "other"}
    assert kept.sync() == 5
    assert content(sampler.at) == {"epoch": 1, "left": [3, 1, 2], "weights": ("torch.float32", [1.0, 2.0])}
    assert scaler.state_dict()["scale"] == 4.0
    assert (kept.values.pop("array") == array).all()
    assert content(kept.values) == before
    assert kept.values["average"] is not average or average.tolist() == before["average"][1]


def test_random_numbers_go_on_as_they_would_have() -> None:
    def draw() -> list[float]:
        return [torch.rand(1).item(), float(np.random.rand()), random.random(), torch.randn(3)[2].item()]

    kept = State(step=0)
    kept.sync()
    draw()
    kept.commit()
    expected = draw()
    kept.sync()
    assert draw() == expected
    assert kept.sync(seed=3) == 0
    seeded = draw()
    kept.step = 1
    kept.commit()
    assert (other := draw()) != seeded
    assert kept.sync(seed=3) == 1
    assert draw() == other
    kept.sync(seed=4)
    assert draw() != other


def test_a_newer_checkpoint_is_asked_for() -> None:
    kept = State(step=4)
    kept.sync()
    kept.commit()
    assert kept.sync(checkpoint=4) == 4
    assert kept.sync(checkpoint=5) is None
    assert kept.reason == "the checkpoint of step 5 is newer than step 4 in memory"
    assert kept.sync() is None and kept.reason == "no rank holds a commit"
    kept.commit()
    assert kept.sync() == 4 and kept.reason == ""


def test_another_form_of_the_model_is_refused_and_named(caplog: pytest.LogCaptureFixture) -> None:
    kept = State(model=linear(), step=0)
    kept.sync()
    kept.commit()
    kept.model = nn.Linear(3, 4)
    assert kept.sync() is None
    assert kept.reason == "rank 0: the model or another item has another form than in the commit"
    assert "model.weight is torch.float32 [2, 3] in the commit and torch.float32 [4, 3] in this process" in caplog.text


def test_an_item_that_cannot_load_its_state_is_refused_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    kept = State(model=linear(), step=0)
    kept.sync()
    kept.commit()
    kept.model = nn.Sequential(linear())
    assert kept.sync() is None
    assert kept.reason == "rank 0: an item could not load its state"
    assert "Missing key(s) in state_dict" in caplog.text


def test_an_object_that_cannot_be_kept_is_named_with_its_path() -> None:
    for value, named in [
        ({"a": [1, object()]}, "values.a.1 is a object"),
        ({"a": {(1, 2): 3}}, "values.a has a key that is a tuple"),
        (torch.eye(2).to_sparse(), "values is a tensor that cannot be kept"),
        ({1, 2}, "values is a set"),
    ]:
        with pytest.raises(TypeError, match=named):
            State(step=0, values=value).sync()


def test_misuse_is_refused() -> None:
    kept = State(step=0)
    with pytest.raises(RuntimeError, match="call sync"):
        kept.commit()
    with pytest.raises(AttributeError, match="no item stpe"):
        kept.stpe = 1
    with pytest.raises(AttributeError, match="no item loss"):
        _ = kept.loss
    for name in ("sync", "commit", "reason", "generators", "_held"):
        with pytest.raises(TypeError, match=name):
            State(step=0, **{name: 1})
    kept.sync()
    kept.step = 1.5
    with pytest.raises(TypeError, match="step is a float"):
        kept.commit()


def test_a_third_commit_takes_no_more_memory() -> None:
    kept = State(model=linear(), step=0)
    kept.sync()
    kept.commit()
    kept.commit()
    places = {tensor.data_ptr() for commit in kept._held.commits for tensor in commit.snapshot.tensors[:2]}
    for _ in range(5):
        kept.commit()
    assert len(places) == 4
    assert {tensor.data_ptr() for commit in kept._held.commits for tensor in commit.snapshot.tensors[:2]} == places


def test_cycles_of_ft_supervisor_name_the_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = State(step=0)
    seen = []
    for term, restart in [("1", "0"), ("1", "1"), ("2", "1"), ("2", "3")]:
        monkeypatch.setenv("FT_SUPERVISOR_TERM", term)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restart)
        kept.sync()
        kept.commit()
        seen.append(kept._held.commits[0].id)
    assert seen == sorted(set(seen)) and seen[0].generation == (2 << 32)


# -- Restart amid a commit or a sync


class Ones:
    """A state of which all parts have the same number, so that a mixed one is seen."""

    def __init__(self) -> None:
        self.model = linear()
        self.kept = State(step=0, model=self.model, values={"same": 0, "list": [0, torch.zeros(3)]})
        self.kept.sync()
        self.put(0)
        self.kept.commit()

    def put(self, number: int) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(number)
        self.kept.values = {"same": number, "list": [number, torch.full((3,), float(number))]}
        self.kept.step = number

    def seen(self) -> set[float]:
        numbers = {parameter.flatten()[at].item() for parameter in self.model.parameters() for at in (0, -1)}
        values = self.kept.values
        return numbers | {self.kept.step, values["same"], values["list"][0], *values["list"][1].tolist()}


def interrupted_at(count: int, call: Callable[[], Any]) -> bool:
    """Raise Restart at the opcode with this number within the package's own code. False: the call ended before."""
    left = count
    package = state.__file__.rpartition("/")[0]

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(package):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                raise Restart
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Restart:
        return True
    finally:
        sys.settrace(former)
    return False


def test_a_commit_is_whole_whatever_its_opcode_at_which_it_is_left() -> None:
    ones, number, opcode = Ones(), 0, 0
    interrupted = True
    while interrupted:
        number += 1
        ones.put(number)
        interrupted = interrupted_at(opcode, ones.kept.commit)
        ones.put(-1)
        found = ones.kept.sync()
        assert found is not None and ones.seen() == {found}
        assert found == number if not interrupted else found in (number, number - 1)
        ones.put(number)
        ones.kept.commit()  # two commits again, so that one is overwritten next time
        opcode += 1 if opcode < 50 else 7
    assert opcode > 1000, "it was left at many places"


def test_a_sync_can_be_left_at_any_opcode_and_made_again() -> None:
    ones, opcode = Ones(), 0
    ones.put(1)
    ones.kept.commit()
    interrupted = True
    while interrupted:
        ones.put(-1)
        interrupted = interrupted_at(opcode, ones.kept.sync)
        ones.put(-2)
        assert ones.kept.sync() == 1 and ones.seen() == {1}
        opcode += 1 if opcode < 50 else 23
    assert opcode > 1000, "it was left at many places"


def test_a_signal_amid_a_commit_leaves_a_whole_state() -> None:
    """Real signals at random moments, between opcodes and in torch's own calls."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise Restart

    ones, cut = Ones(), 0
    former = signal.signal(signal.SIGALRM, leave)
    try:
        for number in range(1, 101):
            ones.put(number)
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0006))
                ones.kept.commit()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Restart:
                cut += 1
            ones.put(-1)
            found = ones.kept.sync()
            assert ones.seen() == {found} and found in (number, number - 1)
            ones.put(number)
            ones.kept.commit()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert cut > 5
