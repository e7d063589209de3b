"""The page's HTML as a Jinja template. Inserted values are escaped and made `plain`, except Markup of report.svg.

`report` is the report.model.Report; the functions are those of report.words, core.words and report.svg.
"""

PAGE = """\
{% macro table(titles) %}
<div class="scroll"><table><thead><tr>
  {%- for title in titles %}<th>{{ title }}</th>{% endfor -%}
</tr></thead><tbody>
{{- caller() -}}
</tbody></table></div>
{% endmacro %}

{% macro listed(title, notes) %}
{% if notes %}
<h3>{{ title }}</h3>
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
{% endmacro %}

{% macro facts(history) %}
<dl class="facts">
  {% for name, value in facts_of(history).items() %}
  <div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
  {% endfor %}
</dl>
{% endmacro %}

{% macro cycles(history) %}
<h3>Cycles</h3>
{% call table(["cycle", "began", "ran for", "nodes", "end", "cause", "reason", "decision"]) %}
  {% for cycle in history.cycles %}
  <tr>
    <td>{{ cycle.number }}</td>
    <td>{{ clock(cycle.start, history.start) }}</td>
    <td>{{ ran(cycle, history.until) }}</td>
    <td><span title="{{ first_names(cycle) }}">{{ cycle.nodes | length }}</span></td>
    <td>{{ cycle.ended.value }}</td>
    <td>{{ cycle.cause }}</td>
    <td class="wide">{{ cycle.reason if cycle.ended.value == "failed" else why(cycle) }}
      {%- with began = began_of(cycle, none if loop.first else loop.previtem) -%}
      {% if began %}<br><span class="soft">began: {{ began }}</span>{% endif %}
      {%- endwith -%}
    </td>
    <td class="wide">{{ [decision(cycle), cycle.rule] | select | join(" by ") }}</td>
  </tr>
  {% endfor %}
{% endcall %}
{% endmacro %}

{% macro losses(history) %}
{% set failed = history.cycles | selectattr("loss") | list %}
{% if failed %}
<h3>Time lost</h3>
{% set longest = known(failed | map(attribute="loss") | list) %}
{% call table(["cycle", "failed", "total"] + titles_of_parts + [""]) %}
  {% for cycle in failed %}
  {% set loss = cycle.loss %}
  {% set ended = loss.resumed is none %}
  <tr>
    <td>{{ cycle.number }}</td>
    <td>{{ clock(loss.at, history.start) }}</td>
    <td>{{ "the job ended" if ended else duration(loss.total) }}</td>
    {% for part in PARTS %}
    <td>{{ "" if ended and part in PARTS[3:] else duration(loss[part]) }}</td>
    {% endfor %}
    <td class="wide">{{ loss_bar(loss, longest) }}</td>
  </tr>
  {% endfor %}
{% endcall %}
<div class="legend">
  {%- for part in PARTS -%}
  <span><svg><rect class="{{ part }}" width="100%" height="100%"/></svg>{{ titles_of_parts[loop.index0] }}</span>
  {%- endfor -%}
</div>
{% endif %}
{% endmacro %}

{% macro takeovers(history) %}
{% if history.takeovers %}
<h3>Takeovers</h3>
{% call table(["at", "new coordinator", "term", "time without one"]) %}
  {% for each in history.takeovers %}
  <tr>
    <td>{{ clock(each.at, history.start) }}</td>
    <td>{{ each.node }}</td>
    <td>{{ each.term }}</td>
    <td>{{ duration(each.gap) }}</td>
  </tr>
  {% endfor %}
{% endcall %}
{% endif %}
{% endmacro %}

{% macro faults(history) %}
{% if history.faults %}
<h3>Faults of the game day</h3>
{% call table(["at", "what ft-supervisor fault did", "in cycle"]) %}
  {% for fault in history.faults[:MOST_FAULTS] %}
  <tr>
    <td>{{ clock(fault.at, history.start) }}</td>
    <td class="wide">{{ deed(fault) }}</td>
    <td>{{ fault.cycle }}</td>
  </tr>
  {% endfor %}
{% endcall %}
{% if history.faults | length > MOST_FAULTS %}
<p class="soft">and {{ history.faults | length - MOST_FAULTS }} more, which are in the JSON</p>
{% endif %}
{% endif %}
{% endmacro %}

{% macro first_failure(history, failure) %}
<h3>First failing rank</h3>
{% if failure.consequence_of %}
<p class="note">{{ consequence(failure) }}</p>
{% endif %}
<p>{{ first_failing(failure) }}</p>
{% if failure.lines %}
<p class="soft">its last lines{% if failure.source %}, from {{ failure.source }}{% endif %}</p>
{# HTML drops the line end after <pre>, and would drop an empty first line without it. #}
<pre>
{{ last_lines(failure) }}</pre>
{% else %}
<p class="soft">{{ NOTHING_PRINTED }}</p>
{% endif %}
{% if since_then(history) %}
<p>{{ since_then(history) }}</p>
{% endif %}
{% if failure.stacks %}
<p>what it was doing: {{ failure.stacks }} in the run's folder</p>
{% endif %}
{% endmacro %}

{% macro run(history) %}
{% set word = outcome(history, report) %}
<section>
<h2>run {{ history.run_id }} {% if history.verdict %}<span class="chip {{ word }}">{{ word }}</span>
  {%- else %}{{ word }}{% endif %}</h2>
{% if history.verdict %}
<p>{{ reason(history.verdict) }}</p>
{% endif %}
{% if history.faults %}
<p class="note">{{ game_day(history.faults) }}</p>
{% endif %}
{% if history.start is not none %}
{{ facts(history) }}
{% endif %}
{% if history.nodes %}
<h3>Nodes</h3>
{{ timeline(history) }}
{% endif %}
{% if history.cycles %}
{{ cycles(history) }}
{% endif %}
{{ losses(history) }}
{{ takeovers(history) }}
{{ faults(history) }}
{% if history.first_failure is not none %}
{{ first_failure(history, history.first_failure) }}
{% endif %}
{{ listed("Not known", history.notes) }}
</section>
{% endmacro %}

{% macro slurm(starts) %}
<section>
<h2>What Slurm says</h2>
{% call table(["record", "restart", "state", "exit code", "start", "took", "nodes", "comment"]) %}
  {% for start in starts %}
  {% for record in start.rows + start.steps %}
  <tr>
    <td>{{ record.step or "job" }}</td>
    <td>{{ start.restart }}</td>
    <td>{{ record.state }}</td>
    <td>{{ record.exit_code or "" }}</td>
    <td>{{ "" if record.start is none else moment(record.start) }}</td>
    <td>{{ duration(record.elapsed) }}</td>
    <td class="wide">{{ record.nodes }}</td>
    <td class="wide">{{ record.comment }}</td>
  </tr>
  {% endfor %}
  {% endfor %}
{% endcall %}
</section>
{% endmacro %}

<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
{# A browser loads nothing for this page, even if a part of it asks for that. #}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>job {{ report.job }}</title>
<style>{{ CSS }}</style>
</head>
<body>
{{ DEFINITIONS }}
<h1>job {{ report.job }}</h1>
<p class="soft">times are {{ zone() }}</p>
{% for line in report.alarms %}
<p class="warn">{{ line }}</p>
{% endfor %}
{% for history in report.runs %}
{{ run(history) }}
{% endfor %}
{% if report.starts %}
{{ slurm(report.starts) }}
{% endif %}
{{ listed("Missing", report.notes) }}
</body>
</html>
"""
