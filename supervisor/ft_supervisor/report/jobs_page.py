"""Renders a list of jobs with the account of their time as one HTML page, in the style of a job's report. Pure, except
for the time zone, which is the reader's."""

from __future__ import annotations

from functools import cache

from jinja2 import Template
from markupsafe import Markup

from ft_supervisor.core.words import count, duration
from ft_supervisor.report.efficiency import Efficiency, total
from ft_supervisor.report.efficiency_text import TITLES, advice, counted, ratio
from ft_supervisor.report.jobs_sources import Listing
from ft_supervisor.report.jobs_text import summary
from ft_supervisor.report.render_html import environment
from ft_supervisor.report.style import CSS
from ft_supervisor.report.template import BAR
from ft_supervisor.report.whole import Share, percent, spoken
from ft_supervisor.report.words import moment, zone

MOST_JOBS = 2000
"""Rows of the table: 2 MB."""
MOST_NAMES = 50
_KINDS = {
    "training": ("training",),
    "again": ("repeated",),
    "first": ("first_start",),
    "detection": ("detection",),
    "stopping": ("stop",),
    "waiting": ("decision", "waiting", "rendezvous"),
    "starting": ("starting",),
    "queued": ("requeued", "queued"),
    "end": ("end", "outside"),
    "unknown": ("unknown",),
}
"""The colours of report.style, each with its parts."""
_WORDS = {
    "waiting": "deciding, waiting for nodes",
    "queued": "queued",
    "end": "ending, and outside of ft-supervisor",
}

PAGE = (
    f"{BAR}\n"
    + """\
{% macro table(titles, pairs, whole) %}
<div class="scroll"><table class="rows"><thead><tr>
  {%- for title in titles %}<th>{{ title }}</th>{% endfor -%}
</tr></thead><tbody>
{% for name, seconds in pairs[:MOST_NAMES] %}
<tr><td class="wide" data-title="{{ titles[0] }}"><span>{{ name }}</span></td>
  <td data-title="lost"><span>{{ duration(seconds) }}</span></td>
  <td data-title="of all time"><span>{{ percent(seconds / whole) }}</span></td></tr>
{% endfor %}
</tbody></table></div>
{% if pairs | length > MOST_NAMES %}
<p class="soft">and {{ pairs | length - MOST_NAMES }} more, which are in the JSON</p>
{% endif %}
{% endmacro %}

{% macro row(job) %}
{% set account = accounts.get(job.row.job_id) %}
<tr>
  <td data-title="job"><span>{{ job.row.name }}</span></td>
  <td data-title="outcome"><span>{{ job.outcome }}</span></td>
  <td data-title="ETTR"><span>{{ ratio(account) }}</span></td>
  <td data-title="of"><span>{{ duration(account.available) if account and account.known else "" }}</span></td>
  <td data-title="failures"><span>{{ account.failures if account and account.known else "" }}</span></td>
  <td data-title="end"><span>{{ "" if job.row.end is none else moment(job.row.end) }}</span></td>
  <td class="wide" data-title="name"><span>{{ job.row.job_name }}</span></td>
  <td class="wide why" data-title="summary"><span>{{ summary(job) }}</span></td>
</tr>
{% endmacro %}

<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{{ title }}</title>
<style>{{ CSS }}</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="soft">{{ counted(listing) }}{% if listing.jobs %}, times in {{ zone() }}{% endif %}</p>
{% if whole.ettr is not none %}
<div class="say">
<p><b>effective training time ratio {{ ratio(whole) }}</b> of {{ duration(whole.available) }}</p>
{% for line in lines %}<p>{{ line }}</p>{% endfor %}
</div>
<h3>Where {{ duration(whole.available) }} went</h3>
{{ bar(shares) }}
{% if whole.by_cause %}
<h3>Lost by cause</h3>
{{ table(["cause", "lost", "of all time"], whole.by_cause, whole.available) }}
{% endif %}
{% if whole.by_node %}
<h3>Lost by node that failed first</h3>
{{ table(["node", "lost", "of all time"], whole.by_node, whole.available) }}
{% endif %}
{% if whole.by_hang %}
<h3>Lost by hang</h3>
{{ table(["began by", "lost", "of all time"], whole.by_hang, whole.available) }}
{% endif %}
{% endif %}
{% if listing.jobs %}
<h3>Jobs</h3>
<div class="scroll"><table class="rows"><thead><tr>
  {%- for each in TITLES %}<th>{{ each }}</th>{% endfor -%}
</tr></thead><tbody>
{% for job in listing.jobs[-MOST_JOBS:] %}
{{ row(job) }}
{% endfor %}
</tbody></table></div>
{% if listing.jobs | length > MOST_JOBS %}
<p class="soft">the last {{ MOST_JOBS }} of {{ listing.jobs | length }}; the JSON has all</p>
{% endif %}
{% endif %}
{% if listing.notes %}
<h3>Missing</h3>
<ul>{% for note in listing.notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
</body>
</html>
"""
)


def render(listing: Listing, since: str, save: float | None, every: float | None) -> str:
    """Return the whole page. `save`, `every`: as in efficiency_text.lines."""
    whole = total(listing.accounts.values())
    return (
        _template()
        .render(
            listing=listing,
            accounts=listing.accounts,
            whole=whole,
            shares=shares(whole),
            lines=list(advice(whole, save, every)),
            title=f"jobs since {since}",
        )
        .lstrip()
    )


def shares(whole: Efficiency) -> tuple[Share, ...]:
    """Return the painted parts of the available time, which add up to it, without those that took no time."""
    found = []
    for kind, names in _KINDS.items():
        if (seconds := sum(map(whole.part, names))) > 0:
            found.append(Share(kind, _WORDS.get(kind, TITLES[names[0]]), seconds, seconds / whole.available))
    return tuple(found)


@cache
def _template() -> Template:
    made = environment()
    functions = (count, counted, duration, moment, percent, ratio, spoken, summary, zone)
    made.globals |= {function.__name__: function for function in functions}
    made.globals["TITLES"] = ["job", "outcome", "ETTR", "of", "failures", "end", "name", "summary"]
    made.globals |= {"CSS": Markup(CSS), "MOST_JOBS": MOST_JOBS, "MOST_NAMES": MOST_NAMES}
    return made.from_string(PAGE)
