"""The page's HTML as a Jinja template. Inserted values are escaped and made `plain`, except Markup of report.svg.

`report` is the report.model.Report; the functions are those of report.words, core.words and report.svg.
"""

BAR = """\
{% macro bar(parts) %}
<div class="stack" role="img" aria-label="{{ spoken(parts) }}">
  {%- for part in parts -%}
  <div class="{{ part.kind }}" style="flex:{{ "%.5f" | format(part.share) }}" title="{{ spoken([part]) }}">
    {%- if part.share > 0.25 %}{{ part.title }}&nbsp;{% endif %}
    {%- if part.share > 0.05 %}{{ percent(part.share) }}{% endif -%}
  </div>
  {%- endfor -%}
</div>
<div class="legend">
  {%- for part in parts -%}
  <span><i class="{{ part.kind }}"></i>{{ spoken([part]) }}</span>
  {%- endfor -%}
</div>
{% endmacro %}
"""
"""A bar whose parts add up to the whole, and its legend. `parts`: of report.whole.Share."""

PAGE = (
    f"{BAR}\n"
    + """\
{% macro listed(title, notes) %}
{% if notes %}
<h3>{{ title }}</h3>
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
{% endmacro %}

{% macro rows(titles) %}
<div class="scroll"><table class="rows"><thead><tr>
  {%- for title in titles %}<th>{{ title }}</th>{% endfor -%}
</tr></thead><tbody>
{{- caller() -}}
</tbody></table></div>
{% endmacro %}

{% macro cell(title, value, class="") %}
<td data-title="{{ title }}"{% if class %} class="{{ class }}"{% endif %}><span>{{ value }}</span></td>
{% endmacro %}

{% macro said(history, word) %}
<div class="say {{ word if history.verdict else "" }}">
<p><b>{{ verdict_line(history, word) }}</b></p>
{% for line in blamed(history) %}
<p>{{ line }}</p>
{% endfor %}
{% for advice in advised(history) %}
<p>What to do: {{ markup(advice.do) }} <span class="soft">(docs/3am.md#{{ advice.anchor }})</span></p>
{% endfor %}
{% if history.faults %}
<p class="soft">{{ game_day(history.faults) }}</p>
{% endif %}
</div>
{% endmacro %}

{% macro time(history) %}
{% set parts = whole(history) %}
{% if parts %}
<h3>Where {{ duration(history.length) }} went
  {%- if history.active %}, on {{ count(history.active, "node") }}{% endif %}</h3>
{{ bar(parts) }}
<p class="soft">effective training time ratio {{ ratio(history) }}; failures took {{ lost(history) }}
  {%- if hours(history) %}; {{ hours(history) }}{% endif %}</p>
{% endif %}
{% endmacro %}

{% macro failures(history) %}
{% set all = cards(history) %}
{% if all %}
<h3>What went wrong</h3>
{% for card in all[-MOST_CARDS:] %}
<div class="card">
  <time>{{ clock(card.at, history.start) }}</time>
  <span><b>{{ card.what }}</b>
    {%- if card.cycles | length > 1 %} <span class="soft">&times;{{ card.cycles | length }}</span>{% endif %}<br>
    <span class="soft">{{ card.answer }} &middot; cycle {{ card.numbers }}</span></span>
  <span class="cost">{{ cost(card) }}</span>
  {% if card.failure %}
  {{ worker(card.failure, card.consequences, loop.last and not card.failure.consequence_of) }}
  {% endif %}
</div>
{% endfor %}
{% if all | length > MOST_CARDS %}
<p class="soft">the last {{ MOST_CARDS }} of {{ all | length }}; the JSON has all</p>
{% endif %}
{% endif %}
{% endmacro %}

{% macro worker(failure, consequences, open) %}
<details{% if open %} open{% endif %}><summary class="soft">
  {%- if consequences %}{{ consequences }}
  {%- elif failure.lines %}its last lines{% if failure.source %}, from {{ failure.source }}{% endif %}
  {%- else %}{{ NOTHING_PRINTED }}{% endif -%}
</summary>
{% if failure.consequence_of %}
<p>{{ consequence(failure) }} {{ first_failing(failure) }}</p>
{% endif %}
{% if failure.lines %}
{# HTML drops the line end after <pre>, and would drop an empty first line without it. #}
<pre>
{{ last_lines(failure) }}</pre>
{% else %}
<p class="soft">{{ NOTHING_PRINTED }}</p>
{% endif %}
{% if failure.stacks %}
<p>what it was doing: {{ failure.stacks }} in the run's folder</p>
{% endif %}
</details>
{% endmacro %}

{% macro cycles(history) %}
<details><summary>All {{ count(history.cycles | length, "cycle") }}</summary>
{% call rows(["cycle", "why it ended", "decision", "began", "ran for", "nodes", "end"]) %}
  {% for cycle in history.cycles %}
  <tr>
    {{ cell("cycle", cycle.number) }}
    <td class="wide why" data-title="why it ended"><span>{{ reason_of(cycle) }}
      {%- with began = began_of(cycle, none if loop.first else loop.previtem) -%}
      {% if began %}<br><span class="soft">began: {{ began }}</span>{% endif %}
      {%- endwith -%}
    </span></td>
    {{ cell("decision", [decision(cycle), cycle.rule] | select | join(" by "), "wide") }}
    {{ cell("began", clock(cycle.start, history.start)) }}
    {{ cell("ran for", ran(cycle, history.until)) }}
    <td data-title="nodes"><span title="{{ first_names(cycle) }}">{{ cycle.nodes | length }}</span></td>
    {{ cell("end", cycle.ended.value) }}
  </tr>
  {% endfor %}
{% endcall %}
{{ losses(history) }}
</details>
{% endmacro %}

{% macro losses(history) %}
{% set failed = history.cycles | selectattr("loss") | list %}
{% if failed %}
<h3>Time lost by each failure</h3>
{% call rows(["cycle", "total"] + titles_of(failed) + ["failed"]) %}
  {% for cycle in failed %}
  {% set loss = cycle.loss %}
  {% set ended = loss.resumed is none %}
  <tr>
    {{ cell("cycle", cycle.number) }}
    {{ cell("total", "the job ended" if ended else duration(loss.total)) }}
    {% for part in parts_of(failed) %}
    {{ cell(part.replace("_", " "), "" if ended and part in PARTS[3:] else duration(loss[part])) }}
    {% endfor %}
    {{ cell("failed", clock(loss.at, history.start)) }}
  </tr>
  {% endfor %}
{% endcall %}
{% endif %}
{% endmacro %}

{% macro takeovers(history) %}
{% if history.takeovers %}
<h3>Takeovers</h3>
{% call rows(["at", "new coordinator", "term", "time without one"]) %}
  {% for each in history.takeovers %}
  <tr>
    {{ cell("at", clock(each.at, history.start)) }}
    {{ cell("coordinator", each.node, "wide") }}
    {{ cell("term", each.term) }}
    {{ cell("without one", duration(each.gap)) }}
  </tr>
  {% endfor %}
{% endcall %}
{% endif %}
{% endmacro %}

{% macro faults(history) %}
{% if history.faults %}
<h3>Faults of the game day</h3>
{% call rows(["at", "what ft-supervisor fault did", "in cycle"]) %}
  {% for fault in history.faults[:MOST_FAULTS] %}
  <tr>
    {{ cell("at", clock(fault.at, history.start)) }}
    {{ cell("fault", deed(fault, history.per_node), "wide") }}
    {{ cell("in cycle", fault.cycle) }}
  </tr>
  {% endfor %}
{% endcall %}
{% if history.faults | length > MOST_FAULTS %}
<p class="soft">and {{ history.faults | length - MOST_FAULTS }} more, which are in the JSON</p>
{% endif %}
{% endif %}
{% endmacro %}

{% macro chip(history, word) %}
{% if history.verdict %}<span class="chip {{ word }}">{{ chip_words(history) }}</span>
{%- else %}<span class="chip">{{ word }}</span>{% endif %}
{% endmacro %}

{% macro run(history, alone) %}
{% set word = outcome(history, report) %}
<section>
{% if not alone %}
<h2>run {{ history.run_id }} {{ chip(history, word) }}</h2>
{% endif %}
<p class="soft">{{ run_line(history) }}</p>
{{ said(history, word) }}
{{ time(history) }}
{{ failures(history) }}
{% if history.nodes %}
<h3>Nodes</h3>
{{ timeline(history) }}
{% endif %}
{% if history.cycles %}
{{ cycles(history) }}
{% endif %}
{{ takeovers(history) }}
{{ faults(history) }}
{{ listed("Not known", history.notes) }}
</section>
{% endmacro %}

{% macro slurm(starts) %}
<section>
<h2>What Slurm says</h2>
{% call rows(["record", "restart", "state", "exit code", "start", "took", "nodes", "comment"]) %}
  {% for start in starts %}
  {% for record in start.rows + start.steps %}
  <tr>
    {{ cell("record", record.step or "job") }}
    {{ cell("restart", start.restart) }}
    {{ cell("state", record.state) }}
    {{ cell("exit code", record.exit_code or "") }}
    {{ cell("start", "" if record.start is none else moment(record.start)) }}
    {{ cell("took", duration(record.elapsed)) }}
    {{ cell("nodes", record.nodes, "wide") }}
    {{ cell("comment", record.comment, "wide") }}
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
<title>{{ title(report) }}</title>
<style>{{ CSS }}</style>
</head>
<body>
{{ DEFINITIONS }}
{% set alone = report.runs | length == 1 %}
<h1>{{ title(report) }} {% if alone %}{{ chip(report.runs[0], outcome(report.runs[0], report)) }}{% endif %}</h1>
{% for line in report.alarms %}
<p class="warn">{{ line }}</p>
{% endfor %}
{% for history in report.runs %}
{{ run(history, alone) }}
{% endfor %}
{% if report.starts %}
{{ slurm(report.starts) }}
{% endif %}
{{ listed("Missing", report.notes) }}
</body>
</html>
"""
)
