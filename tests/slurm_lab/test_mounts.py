"""The lab's machines see a checkout that lies in a folder of mode 0700, as `mktemp -d` makes it."""

import tempfile
from pathlib import Path

from slurm_lab.mounts import closed_to_others


def test_the_uppermost_folder_that_others_may_not_pass_is_named() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as closed:
        checkout = Path(closed, "deep", "checkout")
        checkout.mkdir(parents=True)
        assert closed_to_others(checkout) == Path(closed)
        Path(closed).chmod(0o755)
        assert closed_to_others(checkout) is None
    assert closed_to_others(Path("/tmp")) is None
    assert closed_to_others(Path("/root")) is None  # the chroot has one of its own
