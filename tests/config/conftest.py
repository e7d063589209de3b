"""What the tests of the configuration share."""

from pathlib import Path

import pytest
from tests.config.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
