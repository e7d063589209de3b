"""Asks Slurm with its own commands, as JSON where the release prints it, else as text.

scontrol has JSON since 23.02. Debian's 22.05 has none, and a site may have built any release without the JSON library.
The text is read there; its fields are the same on 22.05 and 24.11 (measured). Steps, the configuration and sacct's
records are read as text on every release: our choice of sacct's fields is the same everywhere, and its JSON is not.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ft_slurm import command, comment, expedite, hostnames, sacct_jobs, sacct_text, scontrol_json, scontrol_text
from ft_slurm.command import TIMEOUT, CommandResult, remaining
from ft_slurm.errors import OVER, BadOutput, JobOver, NoCommands, OutputTooLong, Refused, Unanswered
from ft_slurm.preemption import in_grace, is_requeued, requeues_itself
from ft_slurm.records import AccountingRecord, ExitCode, JobRow, JobState, JobStep, NodeState
from ft_slurm.sacct_jobs import BadTime

JSON_SINCE = (23, 2)
_UNKNOWN_JOB = "Invalid job id"
_UNKNOWN_NODE = "not found"
_PENDING = "Job is pending execution"
_REFUSALS = ("denied", "disabled", _UNKNOWN_JOB, "too long", "not supported")
"""Parts of those slurmctld answers that stay the same when asked again (slurm_errno.c). Other answers may change: while
slurmctld is away, `scontrol requeue` prints "Unexpected message received" (measured, 22.05 and 24.11)."""
_BAD_TIMES = ("Invalid time specification", "is after end time")
_KEPT = ("denied", "has not changed")
_WITHOUT_JSON = ("json", "data_parser", "serializer")
"""Parts of the error message of a scontrol that was built without JSON."""
_SETTINGS = ("SLURM_CLUSTERS", "SLURM_JSON", "SLURM_YAML", "SCONTROL_", "SQUEUE_", "SACCT_")
"""Variables that a user sets, or that srun --clusters leaves behind. They would send the question elsewhere, or change
it."""
T = TypeVar("T")


def for_questions(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Slurm's commands: without a user's settings, and with times as seconds since the
    epoch."""
    kept = {key: value for key, value in environ.items() if not key.startswith(_SETTINGS)}
    return {**kept, "SLURM_TIME_FORMAT": "%s"}


class CliClient:
    """A `SlurmClient` that runs the commands of this PATH."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Find scontrol. Raises NoCommands."""
        self._path = environ.get("PATH")
        scontrol = shutil.which("scontrol", path=self._path)
        if scontrol is None:
            raise NoCommands("there is no scontrol in PATH")
        self.scontrol = scontrol
        self._environ = for_questions(environ)
        self._json: bool | None = None

    def job(self, job_id: int, *, timeout: float = TIMEOUT) -> JobState | None:
        end = time.monotonic() + timeout
        arguments = ["show", "job", str(job_id)]
        if self._prints_json(end):
            found = self._as_json(arguments, end, lambda text: scontrol_json.job(text, job_id))
            if found is not None:
                return found
        done = self._ask(["--oneliner", *arguments], end)
        found = scontrol_text.job(done.stdout, job_id)
        if found is None and _UNKNOWN_JOB not in done.stderr:
            raise Unanswered(f"scontrol show job {job_id}: {done.problem}")
        return found

    def nodes(self, names: Sequence[str], *, timeout: float = TIMEOUT) -> dict[str, NodeState]:
        end = time.monotonic() + timeout
        found: dict[str, NodeState] = {}
        for batch in hostnames.batches(names):
            found |= self._some_nodes(batch, end)
        return {name: found[name] for name in names if name in found}

    def _some_nodes(self, names: str, end: float) -> dict[str, NodeState]:
        wanted = set(names.split(","))
        if self._prints_json(end):
            found = self._as_json(["show", "node", names], end, scontrol_json.nodes)
            if found is not None and wanted <= found.keys():
                return found
        done = self._ask(["--oneliner", "show", "node", names], end)
        found = scontrol_text.nodes(done.stdout)
        if not wanted <= found.keys() and _UNKNOWN_NODE not in done.stdout + done.stderr:
            raise Unanswered(f"scontrol show node: {done.problem}")
        return found

    def running_steps(self, job: JobState, *, timeout: float = TIMEOUT) -> tuple[JobStep, ...]:
        done = self._ask(["--oneliner", "show", "step", str(job.job_id)], time.monotonic() + timeout)
        if not done.stdout.startswith("StepId=") and _UNKNOWN_NODE not in done.stdout + done.stderr:
            raise Unanswered(f"scontrol show step {job.job_id}: {done.problem}")
        return scontrol_text.running_steps(done.stdout, job.name)

    def configuration(self, *, timeout: float = TIMEOUT) -> dict[str, str]:
        return scontrol_text.configuration(self.configuration_text(timeout=timeout))

    def configuration_text(self, *, timeout: float = TIMEOUT) -> str:
        """Return the configuration as scontrol prints it, with times as seconds since the epoch.

        Raises Unanswered when scontrol prints anything else.
        """
        done = self._ask(["show", "config"], time.monotonic() + timeout)
        try:
            scontrol_text.configuration(done.stdout)
        except BadOutput as error:
            raise Unanswered(f"scontrol show config: {done.problem}") from error
        return done.stdout

    def set_comment(
        self, job_id: int, text: str, *, mark: str = comment.MARK, keep: str = "", timeout: float = TIMEOUT
    ) -> bool:
        end = time.monotonic() + timeout
        job = self._known(job_id, end)
        before = self._comment(job, end)
        if keep and comment.has(before, mark, keep):
            return True
        after = comment.with_part(before, mark, text)
        if after != before:
            self._change(["update", f"jobid={job.name}", f"comment={after}"], end)
        return bool(comment.part(after, mark))

    def requeue(self, job: JobState, *, timeout: float = TIMEOUT) -> bool:
        end = time.monotonic() + timeout
        now = self._known(job.job_id, end)
        if is_requeued(job, now) or (in_grace(now) and self._requeues_itself(now, end)):
            return False
        self._change(["requeue", job.name], end)
        return True

    def end_for_good(self, job_id: int, restart_count: int, *, timeout: float = TIMEOUT) -> bool:
        end = time.monotonic() + timeout
        if (0, 0) < self._version(end) < expedite.SINCE:
            return False
        job = self._known(job_id, end)
        if job.restart_count != restart_count or not expedite.runs_again(job):
            return False
        self._change(["update", f"jobid={job.name}", "requeue=0"], end)
        return True

    def accounting(self, job_id: int, *, timeout: float = TIMEOUT) -> tuple[AccountingRecord, ...]:
        line = [self._tool("sacct"), "--duplicates", f"--jobs={job_id}", *sacct_text.OPTIONS]
        done = command.run(line, timeout, self._environ)
        if not done.stdout.strip() and (done.code or done.stderr.strip()):
            raise Unanswered(f"sacct: {done.problem}")
        return sacct_text.records(done.stdout, job_id)

    def jobs_since(self, start: str, user_id: int, *, timeout: float = TIMEOUT) -> tuple[list[JobRow], int]:
        """Return the records of this user's jobs that existed at any moment since `start` (sacct_jobs.since), and the
        number of sacct's rows that make no sense.

        Asks slurmdbd once. Raises BadTime, Refused (there is no accounting).
        """
        options = [f"--starttime={start}", "--endtime=now", f"--user={user_id}", *sacct_jobs.OPTIONS]
        done = command.run([self._tool("sacct"), *options], timeout, self._environ)
        if not done.stdout.strip() and (done.code or done.stderr.strip()):
            if any(each in done.stderr for each in _BAD_TIMES):
                raise BadTime(f"--since {start}: {done.problem}")
            raise (Refused if "disabled" in done.stderr else Unanswered)(f"sacct: {done.problem}")
        found, bad = sacct_jobs.rows(done.stdout)
        return [row for row in found if row.user_id in (None, user_id)], bad

    def set_derived_exit_code(self, name: str, code: int, *, timeout: float = TIMEOUT) -> None:
        """Set the DerivedExitCode of the newest run of the job called `name` (JobRow.name) to `code` (0 to 255).

        The owner may do that once the job has ended: at the end slurmctld sends a code of its own, which overwrites an
        earlier one (as_mysql_job.c: as_mysql_modify_job, as_mysql_job_complete). The database holds a wait status, of
        which sacct shows the code. Raises Refused where a site does not let owners do that. The output "Modified jobs"
        is no proof: since 25.05 sacctmgr prints it before it looks at slurmdbd's answer (sacctmgr/job_functions.c). So
        this function reads the value back.
        """
        end = time.monotonic() + timeout
        change = ["--immediate", "modify", "job", "where", f"jobid={name}", "set", f"DerivedExitCode={code << 8}"]
        done = command.run([self._tool("sacctmgr"), *change], remaining(end), self._environ)
        problem = done.problem
        if not done.code:
            kept = self._derived_exit_code(name, end)
            if kept == ExitCode(code, 0):
                return
            has = kept or "no such job"
            problem = problem if done.stderr.strip() else f"it says that it did, and the database has {has}"
        said = f"sacctmgr modify job {name}: {problem}"
        raise (Refused if any(each in done.stderr for each in _KEPT) else Unanswered)(said)

    # How

    def _derived_exit_code(self, name: str, end: float) -> ExitCode | None:
        """Return the code of the job's newest run, as the database has it."""
        line = [self._tool("sacct"), f"--jobs={name}", *sacct_jobs.OPTIONS]
        done = command.run(line, remaining(end), self._environ)
        found = [row for row in sacct_jobs.rows(done.stdout)[0] if row.name == name]
        if not found and (done.code or done.stderr.strip()):
            raise Unanswered(f"sacct: {done.problem}")
        newest = max(found, key=lambda row: (row.submit or 0, row.start or 0), default=None)
        return newest.derived_exit_code if newest else None

    def _requeues_itself(self, job: JobState, end: float) -> bool:
        done = self._ask(["--oneliner", "show", "partition", job.partition], end)
        mode = scontrol_text.field(done.stdout, "PreemptMode")
        if not mode:
            raise Unanswered(f"scontrol show partition {job.partition}: {done.problem}")
        return requeues_itself(job, self._version(end), mode)

    def _known(self, job_id: int, end: float) -> JobState:
        job = self.job(job_id, timeout=remaining(end))
        if job is None:
            raise Refused(f"slurmctld has no job {job_id}")
        return job

    def _comment(self, job: JobState, end: float) -> str:
        """Return the comment unchanged. scontrol's text cannot show that: there the comment runs together with the next
        field."""
        line = [self._tool("squeue"), "--noheader", "--states=all", f"--jobs={job.name}", "--format=%A\x1f%k"]
        done = command.run(line, remaining(end), self._environ)
        number, separator, text = done.stdout.removesuffix("\n").partition("\x1f")
        if not separator or number.strip() != str(job.job_id):
            raise Unanswered(f"squeue: {done.problem}")
        return "" if text == "(null)" else text

    def _change(self, arguments: Sequence[str], end: float) -> None:
        """Run a scontrol command that changes something. It prints nothing when it succeeds; its exit code is no proof.

        Raises Refused and JobOver when slurmctld refuses the change.
        """
        done = self._ask(arguments, end)
        if _PENDING in done.stderr or (not done.code and not done.stderr.strip()):
            return
        said = f"scontrol {' '.join(arguments[:2])}: {done.problem}"
        if any(each in done.stderr for each in OVER):
            raise JobOver(said)
        raise Refused(said) if any(each in done.stderr for each in _REFUSALS) else Unanswered(said)

    def _as_json(self, arguments: Sequence[str], end: float, read: Callable[[str], T]) -> T | None:
        """Return what `read` makes of scontrol's JSON; None when scontrol printed no JSON.

        Stops using JSON for good where this scontrol was built without it, or where the answer is too long: for a large
        job it lists every core of every node, for an array every task. `read` may find nothing, with exit code 0, both
        for a job that slurmctld does not have and while slurmctld is away (measured, 24.11). Only the text
        distinguishes the two.
        """
        try:
            done = self._ask(["--json", *arguments], end)
        except OutputTooLong:
            self._json = False
            return None
        if done.stdout.lstrip().startswith("{"):
            return read(done.stdout)
        self._json = not any(word in done.stderr.lower() for word in _WITHOUT_JSON)
        return None

    def _prints_json(self, end: float) -> bool:
        if self._json is None:
            self._json = self._version(end) >= JSON_SINCE
        return self._json

    def _version(self, end: float) -> tuple[int, int]:
        return scontrol_text.version(self._ask(["--version"], end).stdout)

    def _ask(self, arguments: Sequence[str], end: float) -> CommandResult:
        return command.run([self.scontrol, *arguments], remaining(end), self._environ)

    def _tool(self, name: str) -> str:
        path = shutil.which(name, path=self._path)
        if path is None:
            raise Refused(f"there is no {name} in PATH")
        return path
