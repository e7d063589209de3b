"""What README and docs say is so: links, commands, keys, events, configurations, and what becomes of each block."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import typer
import yaml

from ft_docs import events
from ft_docs.pages import KINDS, Block, Page, pages, read
from ft_supervisor import config
from ft_supervisor.cli.app import app
from ft_supervisor.config import defaults
from ft_supervisor.config.schema import JOB_KEYS, KEYS

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = pages(REPOSITORY)
BY_HAND = [page for page in PAGES if page.path.parent.name != "reference"]
FOR_USERS = [page for page in PAGES if page.path.name != "CONTRIBUTING.md"]
BLOCKS = [block for page in FOR_USERS for block in page.blocks]
CONFIGURATIONS = [block for block in BLOCKS if block.language == "yaml"]
LANGUAGES = {"bash", "python", "yaml", "text", "{toctree}"}
SECTIONS = {key.partition(".")[0] for key in KEYS}


def every(pattern: str) -> list[tuple[str, re.Match[str]]]:
    """What matches as a whole between backticks, with its place."""
    return [
        (f"{page.path.name}:{line}", match)
        for page in PAGES
        for line, text in page.inline
        if (match := re.fullmatch(pattern, text))
    ]


def test_every_block_says_what_becomes_of_it() -> None:
    assert len(BLOCKS) > 20
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.place}: begin the block with ``` and one of {sorted(LANGUAGES)}"
        if block.language in ("bash", "python"):
            assert block.kind in KINDS, f"{block.place}: say {' or '.join(KINDS)}"
            assert bool(block.reason) == (block.kind == "shown"), f"{block.place}: `shown` alone has a reason"
        else:
            assert block.kind == "", block.place


def test_what_is_said_of_a_block_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("# A b: c\n\n```bash shown: why\nls\n```\n\n    indented\n\n[x](y.md#z) `code`\n")
    page = read(path)
    assert page.blocks[0] == Block("x.md:3", "bash", "shown", "why", "ls\n")
    assert page.blocks[1].language == ""
    assert (page.links, page.inline) == (((9, "y.md#z"),), ((9, "code"),))
    assert page.anchors == {"a-b-c"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.name)
def test_links_lead_somewhere(page: Page) -> None:
    for line, target in page.links:
        url = urlsplit(target)
        if url.scheme:
            assert url.scheme == "https", f"{page.path.name}:{line}: {target}"
            continue
        path = (page.path.parent / url.path).resolve() if url.path else page.path
        assert path.exists(), f"{page.path.name}:{line}: there is no {target}"
        if url.fragment:
            assert url.fragment in read(path).anchors, f"{page.path.name}:{line}: {path.name} has no #{url.fragment}"


def test_every_page_can_be_found_from_the_first() -> None:
    seen: set[Path] = set()
    todo = [REPOSITORY / "README.md"]
    while todo:
        path = todo.pop()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        todo += [(path.parent / urlsplit(link).path).resolve() for _, link in read(path).links if "//" not in link]
    assert {page.path for page in PAGES} <= seen


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command line of ours, with its place: between backticks, and in the blocks of bash."""
    for place, match in every(r"ft-supervisor( [^…]*)?"):
        yield place, shlex.split(match[0])
    for block in BLOCKS:
        if block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                plain = re.sub(r'"\$\([^)]*\)"', "X", line.partition(" #")[0])
                if found := re.search(r"(?:^|\s)(ft-supervisor\s[^|>&;]*)", plain):
                    yield block.place, shlex.split(found[1])


def test_every_command_exists_with_its_options() -> None:
    found = list(commands())
    assert len(found) > 25
    for place, words in found:
        command, rest = typer.main.get_command(app), words[1:]
        if rest and rest[0].startswith("--config"):
            continue  # the daemon
        name = ""
        while rest and (below := getattr(command, "commands", None)) is not None and not rest[0].startswith("-"):
            name, rest = rest[0], rest[1:]
            assert name in below, f"{place}: there is no {' '.join(words)}"
            command = below[name]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        given = {word.partition("=")[0] for word in rest[: rest.index("--") if "--" in rest else None]}
        unknown = {word for word in given if word.startswith("-")} - options
        assert not unknown or name == "submit", f"{place}: {' '.join(words)}: no option {unknown}"


def test_every_script_exists_with_its_options() -> None:
    found = [(place, match[1], match[2] or "") for place, match in every(r"(?:\./)?(scripts/[\w-]+)( .*)?")]
    for page in PAGES:
        for block in page.blocks:
            lines = re.findall(r"^(?:\./)?(scripts/[\w-]+)(.*)", block.text, re.MULTILINE)
            found += [(block.place, script, rest) for script, rest in lines]
    assert len(found) > 20
    folders = ("scripts", "tests/simulation", "tests/slurm_lab")  # the latter two are what some scripts run
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*") if path.suffix in ("", ".py")]
    sources = "\n".join(path.read_text() for path in files if path.is_file())
    for place, script, rest in found:
        assert (REPOSITORY / script).is_file(), f"{place}: {script}"
        for option in re.findall(r"(?<= )--\w[\w-]*", re.split(r" -- |  ", rest)[0]):
            assert option in sources, f"{place}: {script} has no {option}"


def test_every_key_exists() -> None:
    found = [
        (place, match[0])
        for place, match in every(r"[a-z_]+(\.[a-z_]+)+(?<!jsonl)")
        if match[0].split(".")[0] in SECTIONS
    ]
    assert len(found) > 50
    for place, key in found:
        assert any(key == known or known.startswith(f"{key}.") for known in KEYS), f"{place}: there is no key {key}"


UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "MiB": 2.0**20}


def test_built_in_values_in_running_text_are_those_of_the_code() -> None:
    values, compared = defaults.built_in(), 0
    for page in FOR_USERS:
        text = " ".join(page.path.read_text().split())
        for key, number, unit in re.findall(r"`([a-z_]+\.[a-z_]+)`[,:]? \(?(\d[\d.]*) (ms|s|min|MiB)\b", text):
            assert float(number) * UNITS[unit] == values[key].value, f"{page.path.name}: {key}, {number} {unit}"
            compared += 1
    assert compared >= 10


def test_every_event_exists() -> None:
    known = {event.name for event in events.events(REPOSITORY)}
    found = every(r"event=(\w+)")
    assert len(found) > 20
    for place, match in found:
        assert match[1] in known or match[1] == "NAME", f"{place}: no event is called {match[1]}"


def test_what_people_look_for_at_night_is_what_the_code_says() -> None:
    sources = "\n".join(path.read_text() for path in (REPOSITORY / "supervisor").rglob("*.py"))
    told = re.findall(r'^\|[^|]*?"([^"|]+)"', (REPOSITORY / "docs/3am.md").read_text(), re.MULTILINE)
    assert len(told) > 5
    for words in told:
        fixed = max((part.strip(" '…") for part in re.split(r"\d+|…|\)", words)), key=len)
        assert fixed in sources, f"3am.md: nothing says {fixed!r}"


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: page.path.name)
def test_running_text_has_short_lines(page: Page) -> None:
    outside = re.sub(r"^```.*?^```$", "", page.path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for line in outside.splitlines():
        assert len(line) <= 120 or line.startswith("|"), f"{page.path.name}: {line}"


def test_nothing_is_unfinished() -> None:
    for page in PAGES:
        assert "@@" not in page.path.read_text(), page.path.name


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.place)
def test_every_configuration_is_right(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(block.text)
    if yaml.safe_load(block.text).keys() & {key.partition(".")[0] for key in JOB_KEYS}:
        config.load(path, environ={}, command=("python", "train.py"))
    else:
        config.load_policy(path, environ={})


@pytest.mark.parametrize("path", sorted((REPOSITORY / "docs/pictures").iterdir()), ids=lambda path: path.name)
def test_pictures_are_drawings_with_a_description(path: Path) -> None:
    assert path.suffix == ".svg"
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{svg}svg"
    assert root.findtext(f"{svg}title") and len(root.findtext(f"{svg}desc") or "") > 40
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    for text in root.iter(f"{svg}text"):
        if (x := text.attrib["x"]).endswith("%"):  # in a part of the picture
            assert 0 <= float(x[:-1]) <= 100
            continue
        assert left <= float(text.attrib["x"]) <= left + width and top < float(text.attrib["y"]) < top + height
    used = [link for page in PAGES for _, link in page.links]
    assert any(link.endswith(f"pictures/{path.name}") for link in used)
