"""The value of `hello`, which identifies the job and candidate of a store. JSON, validated when read."""

from __future__ import annotations

import hashlib
import json

from ft_supervisor.core.protocol.model import PROTOCOL, Job


def policy_sum(job: Job) -> str:
    """Return the SHA-256 of the whole merged configuration."""
    return hashlib.sha256(job.policy.encode()).hexdigest()


def dump(job: Job, candidate: int) -> bytes:
    """Return the value for the store of this candidate."""
    return json.dumps({**_ours(job, candidate), "policy": policy_sum(job)}).encode()


def read(data: bytes | None, job: Job, candidate: int) -> str | None:
    """Return the sum of the store's configuration; None if it is not the store of this candidate of this job."""
    try:
        told = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
    ours = _ours(job, candidate)
    if not isinstance(told, dict) or {key: told.get(key) for key in ours} != ours:
        return None
    theirs = told.get("policy")
    return theirs if isinstance(theirs, str) else None


def _ours(job: Job, candidate: int) -> dict[str, object]:
    return {"run_id": job.run_id, "protocol": PROTOCOL, "infra_rank": candidate}
