"""A cut's rules, its refusals, and, where this machine can, a cut between two network namespaces."""

import os
import shutil
import subprocess
import sys

import pytest

from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.fault import cut
from ft_supervisor.fault.messages import NotAllowed

NFT = shutil.which("nft", path=os.environ["PATH"] + ":/usr/sbin")


def test_without_the_capability_or_nft_it_says_so() -> None:
    able, unable = "CapEff:\t0000003fffffffff\n", "CapEff:\t0000000000000000\n"
    assert cut.why_not("/usr/sbin/nft", able) is None
    assert "CAP_NET_ADMIN" in (cut.why_not("/usr/sbin/nft", unable) or "")
    assert "nftables" in (cut.why_not(None, able) or "")


def test_a_local_job_has_one_network() -> None:
    job = Job("7.0.0", ("n0", "n1"), ("h0", "h1"), (1,), "/r", "/l", 1, 1, ("true",), signal_workers=True)
    with pytest.raises(NotAllowed, match="freeze node"):
        cut.Cut(job, Node(0, "n0", "h0"))


def test_rules() -> None:
    assert cut.rules("ft_fault_7", {"10.0.0.2", "10.0.0.1"}, 1.5) == (
        "table inet ft_fault_7 {\n"
        "  set four { type ipv4_addr; flags timeout; "
        "elements = { 10.0.0.1 timeout 1500ms, 10.0.0.2 timeout 1500ms } }\n"
        "  chain input { type filter hook input priority -300; policy accept; ip saddr @four drop; }\n"
        "  chain output { type filter hook output priority -300; policy accept; ip daddr @four drop; }\n"
        "}\n"
    )
    both = cut.rules("t", {"10.0.0.1", "fd00::1"}, 20)
    assert "set six { type ipv6_addr; flags timeout; elements = { fd00::1 timeout 20000ms } }" in both
    assert "ip saddr @four drop; ip6 saddr @six drop;" in both


INSIDE = """\
import subprocess, sys, time
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.fault.cut import Cut
job = Job("7.0.0", ("a", "b"), ("127.0.0.1", "127.0.0.2"), (1,), "/r", "/l", 1, 1, ("true",))
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
import socket
def reaches():
    one, other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    with one, other:
        other.bind(("127.0.0.2", 0))
        one.bind(("127.0.0.1", 0))
        other.settimeout(0.5)
        try:
            one.sendto(b"x", other.getsockname())
            return other.recv(1) == b"x"
        except OSError:
            return False
assert reaches()
# Both are on this machine here; the other one is a peer all the same.
cut = Cut(job, Node(0, "a", "127.0.0.1"))
cut.begin(3600.0)
assert not reaches()
cut.end()
assert reaches()
cut.begin(2.0)
assert not reaches()
end = time.monotonic() + 60
while not reaches():  # nobody but the kernel ends it
    assert time.monotonic() < end
"""


@pytest.mark.skipif(NFT is None or os.geteuid() != 0, reason="a cut needs root and nft")
def test_a_cut_begins_and_ends_by_itself() -> None:
    line = ["unshare", "--net", sys.executable, "-P", "-c", INSIDE]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, env=environ)
    if "nft:" in done.stderr and "not supported" in done.stderr:
        pytest.skip("this kernel has no nftables")
    assert done.returncode == 0, done.stderr
