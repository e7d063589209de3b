"""torch's record of the collectives, written before the groups are aborted."""

import os
import pickle
import socket
from collections.abc import Callable
from pathlib import Path

from tests.worker.fake_agent import Worker

Start = Callable[..., Worker]
SCRIPT = """
import torch, torch.distributed as dist
@worker.restartable
def train():
    dist.init_process_group('gloo')
    dist.all_reduce(torch.ones(7))
    say('in')
    time.sleep(600)
train()
"""


def environment(folder: Path, cycle: str) -> dict[str, str]:
    """Return a cycle's environment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    file = {"TORCH_FR_BUFFER_SIZE": "10", "TORCH_FR_DUMP_TEMP_FILE": str(folder / cycle / "collectives_rank")}
    return {**place, **file, "FT_SUPERVISOR_CYCLE": cycle}


def test_each_cycle_has_its_record(start: Start, tmp_path: Path) -> None:
    worker = start(SCRIPT, environment=environment(tmp_path, "0.0"))
    worker.begin()
    worker.says("in")
    worker.send("abort")
    worker.parks(threads=[])
    record = pickle.loads((tmp_path / "0.0" / "collectives_rank0").read_bytes())
    assert [entry["profiling_name"] for entry in record["entries"]] == ["gloo:all_reduce"]
    assert record["entries"][0]["input_sizes"] == [[7]]

    os.mkfifo(tmp_path / "pipe0")  # without a reader: to open it takes for ever
    worker.run("0.1", **environment(tmp_path, "0.1") | {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "pipe")})
    worker.expect("called")
    worker.says("in")
    worker.send("abort")
    worker.parks(threads=[])

    (tmp_path / "0.2").write_text("no folder")
    worker.run("0.2", **environment(tmp_path, "0.2"))
    worker.expect("called")
    worker.says("in")
    worker.send("abort")
    worker.parks(threads=[])
    assert "no flight recorder's file" in worker.output()
