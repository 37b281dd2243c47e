"""Writes results: pictures (PNG, SVG), tables (CSV), all numbers (JSON), and a report that opens from disk (HTML)."""

import base64
import csv
import html
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muse_plugin.analysis.result import Result
from muse_plugin.files.atomic_files import open_atomically
from muse_plugin.results.figures import import_matplotlib
from muse_plugin_command.flag_checks import check_target_folder

REPORT_NAME = "report.html"
NUMBERS_NAME = "numbers.json"
_MOST_ROWS_IN_JSON = 20_000  # larger tables are in their CSV alone
_MOST_ROWS_IN_REPORT = 200
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2429; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.25; } h2 { margin-top: 2.5rem; border-top: 1px solid #d5d9dc; padding-top: 1.25rem; }
img { max-width: 100%; height: auto; } table { border-collapse: collapse; font-size: 0.85rem; }
th, td { border: 1px solid #d5d9dc; padding: 0.15rem 0.5rem; text-align: left; font-variant-numeric: tabular-nums; }
th { background: #f2f4f5; } .scroll { overflow: auto; max-height: 24rem; }
@media print { .scroll { max-height: none; } }
""".strip()


def check_output(folder: Path) -> None:
    """Checks ``--output`` before anything is computed, and that pictures can be drawn.

    Raises:
        NotADirectoryError: if it is a file.
        FileNotFoundError: if the folder that is to hold it does not exist.
        ImportError: if matplotlib is missing.
    """
    check_target_folder(folder, "--output")
    import_matplotlib("analyze")


def write_results(
    folder: Path, title: str, results: Sequence[Result], missing: dict[str, str], record: dict[str, Any]
) -> None:
    """Writes everything; the report comes last.

    Args:
        folder: made if it does not exist; files of the same names are replaced.
        title: of the report.
        results: at least one.
        missing: analyses that have nothing to show, by their names: why, as clauses.
        record: what was analysed and how, for the report and the JSON.
    """
    folder.mkdir(exist_ok=True)
    for result in results:
        for ending in ("png", "svg"):
            result.draw(folder / f"{result.name}.{ending}")
        _write(folder / f"{result.name}.csv", format_csv(result))
    content = {
        **record,
        "results": {result.name: _describe(result) for result in results},
        "not_applicable": missing,
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    _write(folder / NUMBERS_NAME, text + "\n")
    pictures = {result.name: (folder / f"{result.name}.png").read_bytes() for result in results}
    _write(folder / REPORT_NAME, format_report(title, results, missing, record, pictures))


def _write(path: Path, text: str) -> None:
    with open_atomically(path) as file:
        file.write(text.encode("utf-8", errors="replace"))


def format_csv(result: Result) -> str:
    """A result's table as CSV: comma-separated, a first row with the columns; blank where there is no number."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(result.columns)
    for row in result.rows:
        writer.writerow("" if _is_blank(value) else value for value in row)
    return stream.getvalue()


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _describe(result: Result) -> dict[str, Any]:
    described: dict[str, Any] = {"title": result.title, "text": result.text, "columns": list(result.columns)}
    if len(result.rows) > _MOST_ROWS_IN_JSON:
        return {**described, "rows_are_in": f"{result.name}.csv"}
    return {**described, "rows": [[_make_plain(value) for value in row] for row in result.rows]}


def _make_plain(value: Any) -> Any:
    """Numbers that JSON has no word for become None (no number) or text (infinity)."""
    if _is_blank(value):
        return None
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def format_report(
    title: str,
    results: Sequence[Result],
    missing: dict[str, str],
    record: dict[str, Any],
    pictures: dict[str, bytes],
) -> str:
    """The report: one file without scripts, fonts or pictures from elsewhere.

    Args:
        title: of the page.
        results: what is shown.
        missing: what is not, see ``write_results``.
        record: shown as it is.
        pictures: PNG of every result, by its name.
    """
    parts = [f"<h1>{html.escape(title)}</h1>", "<ul>"]
    parts += [f'<li><a href="#{html.escape(r.name)}">{html.escape(r.title)}</a></li>' for r in results]
    parts.append("</ul>")
    for result in results:
        parts += _format_result(result, pictures[result.name])
    if missing:
        parts.append("<h2>What does not apply</h2><ul>")
        parts += [f"<li>{html.escape(name)}: {html.escape(reason)}</li>" for name, reason in missing.items()]
        parts.append("</ul>")
    settings = json.dumps(record, indent=1, ensure_ascii=False, default=str)
    parts.append(f"<h2>What was analysed</h2><pre class='scroll'>{html.escape(settings)}</pre>")
    body = "\n".join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body>{body}</body></html>\n"
    )


def _format_result(result: Result, picture: bytes) -> list[str]:
    name = html.escape(result.name)
    data = base64.b64encode(picture).decode("ascii")
    files = ", ".join(f'<a href="{name}.{ending}">{name}.{ending}</a>' for ending in ("png", "svg", "csv"))
    parts = [
        f'<h2 id="{name}">{html.escape(result.title)}</h2>',
        f"<p>{html.escape(result.text)}</p>",
        f'<img src="data:image/png;base64,{data}" alt="{html.escape(result.title)}">',
        f"<p>Files next to this report: {files}</p>",
    ]
    if len(result.rows) <= _MOST_ROWS_IN_REPORT:
        parts.append("<details><summary>Numbers</summary><div class='scroll'><table>")
        parts.append(_format_row(result.columns, "th"))
        parts += [_format_row(row, "td") for row in result.rows]
        parts.append("</table></div></details>")
    return parts


def _format_row(values: Sequence[Any], tag: str) -> str:
    cells = "".join(f"<{tag}>{html.escape(_format_cell(value))}</{tag}>" for value in values)
    return f"<tr>{cells}</tr>"


def _format_cell(value: Any) -> str:
    if _is_blank(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
