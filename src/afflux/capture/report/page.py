"""Assemble the page of a report: its sections, plots, style and scripts in one HTML file that loads nothing.

The policy in its head permits only the two scripts of this package, by their digests. A text of the capture could not
run even if it were not escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from afflux.capture.report import plots
from afflux.capture.report.bounds import Bounds
from afflux.capture.report.bundle import libraries
from afflux.capture.report.collected import Collected
from afflux.capture.report.ladder import Ladder, Rows
from afflux.capture.report.markup import Markup, fill, join, script_json
from afflux.capture.report.sections import Sections, absent
from afflux.capture.report.summary import CAUSES
from afflux.capture.report.words import blamed, clean, seconds

__all__ = ["page"]

_FRAME: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {policy}; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="afflux">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<main id="main">
{body}</main>
<script type="application/json" id="report">{data}</script>
<script>{libraries}</script>
<script>{script}</script>
</body>
</html>
"""
_NO_SCRIPT: Final = Markup(
    "<noscript><p class=note>The plot needs JavaScript. The text has its figures.</p></noscript>"
)

_NEEDED: Final = {"traffic": {"frames"}, "ladder": {"streams", "frames"}, "credit": {"streams", "credit"}}
"The tables that a section needs, unless it has the name of its table."


class _Page:
    """The parts of one page, and the plots that its script renders."""

    def __init__(self, found: Collected, bounds: Bounds) -> None:
        self._found = found
        self._bounds = bounds
        self._sections = Sections(found, bounds)
        self.plots: list[plots.Spec] = []

    def _figure(self, caption: str | Markup, description: str, *specs: plots.Spec) -> Markup:
        """Return the place of plots, with a caption, and a description for readers who cannot see them."""
        first = len(self.plots)
        self.plots += specs
        places = join(fill('<div class="plot" data-plot="{at}"></div>', at=first + at) for at in range(len(specs)))
        return fill(
            '<figure><figcaption>{caption}</figcaption><div role="img" aria-label="{description}">{places}</div>'
            "{otherwise}</figure>\n",
            caption=caption,
            places=places,
            description=description,
            otherwise=_NO_SCRIPT,
        )

    def body(self, title: str) -> Markup:
        """Return the sections, in the order in which an operator asks."""
        sections = self._sections
        parts = [
            ("lost", "Lost", "What the capture has lost", sections.lost()),
            ("stalls", "Stalls", "Who stopped which stream", sections.stalls()),
            ("causes", "Causes", "Stalls by cause", self._causes()),
            ("credit", "Credit", "Credit against items", self._credit()),
            ("traffic", "Throughput", "Throughput", self._traffic()),
            ("latencies", "Latencies", "Latencies by route", self._latencies()),
            ("violations", "Violations", "Violations", sections.violations()),
            ("streams", "Streams", "Streams", sections.streams()),
            ("ladder", "Ladder", "Ladder", self._ladder()),
            ("connections", "Connections", "Connections", sections.connections()),
            ("notes", "Left out", "What this page leaves out", sections.notes()),
        ]
        lacks = self._found.absent
        parts = [(*part[:3], absent(lacks & _NEEDED.get(part[0], {part[0]})) or part[3]) for part in parts]
        shown = [part for part in parts if part[3]]
        links = join(fill('<a href="#{id}">{name}</a>', id=part[0], name=part[1]) for part in shown)
        nav = fill('<nav aria-label="Sections">{links}</nav>\n', links=links)
        return join((sections.head(title), nav, *(_section(id_, name, content) for id_, _, name, content in shown)))

    def _causes(self) -> Markup:
        causes = self._found.summary.causes
        if not any(one.count for one in causes.values()):
            return Markup()
        said = "; ".join(f"{name} {seconds(one.seconds)}" for name, one in causes.items() if one.count)
        spec = plots.causes(causes)
        return join(
            (self._figure("Time that streams were stalled, in all", f"Bars: {said}", spec), self._sections.causes())
        )

    def _credit(self) -> Markup:
        figures = list(self._credit_figures())
        if not figures:
            lines = (line for ladder in self._found.details.ladders.values() for line in ladder.credit.values())
            known = any(line.points for line in lines)
            one = "The capture has one grant of each stream, and nothing after it."
            return fill("<p>{text}</p>\n", text=one if known else "No credit was granted.")
        legend = Markup(
            '<p class="legend"><span><i class="line granted"></i>granted</span><span><i class="line used"></i>sent'
            "</span> <span>Shaded: stalled, in the colour of its cause. Below: credit left.</span></p>\n"
        )
        return join((legend, fill('<div class="pair">{figures}</div>\n', figures=join(figures))))

    def _credit_figures(self) -> Iterator[Markup]:
        """Yield the plots of the worst streams with credit."""
        left = self._bounds.credit_plots
        for at, ladder in enumerate(self._found.details.ladders.values()):
            for direction, line in sorted(ladder.credit.items()):
                if left and len(line.points) > 1:
                    left -= 1
                    yield self._credit_figure(at, ladder, direction)

    def _credit_figure(self, at: int, ladder: Ladder, direction: str) -> Markup:
        line = ladder.credit[direction]
        shades = [
            (stall["start"], stall["stop"], stall["cause"] if stall["cause"] in CAUSES else "unknown")
            for stall in ladder.stalls
            if stall["dir"] == direction and stall["start"] is not None and stall["stop"] is not None
        ]
        last, side = line.points[-1], {">": "client", "<": "server"}.get(direction, "sender")
        given, most = plots.granted(last.granted), plots.most_shown(line)
        said = f"{last.used:,} items sent of {given} granted"
        stalled = f", {len(shades)} stalls" if shades else ""
        caption = fill(
            '<a href="#ladder-{at}">Stream {stream}</a>{route} <span class="from">of <code>{conn}</code>: items of the '
            "{side}, {said}{cut}</span>",
            at=at,
            conn=clean(ladder.stream["conn"], self._bounds.text),
            stream=ladder.stream["stream"],
            route="" if ladder.stream["route"] is None else fill(" <code>{r}</code>", r=self._label(ladder)),
            side=side,
            said=said,
            cut=f"; the axis ends at {most:,} items" if max(point.granted for point in line.points) > most else "",
        )
        both = plots.credit(line, shades, self._bounds.credit_points)
        return self._figure(caption, f"Credit of stream {ladder.stream['stream']}: {said}{stalled}", *both)

    def _label(self, ladder: Ladder) -> str:
        return clean(ladder.stream["route"], self._bounds.text // 4)

    def _traffic(self) -> Markup:
        timeline, stalling = self._found.traffic.timeline, self._found.summary.stalling
        parts: list[Markup] = [self._sections.traffic()]
        if len(timeline):
            caption = Markup(
                'Bytes of frames per second <span class="legend"><span><i class="line client"></i>from the client'
                '</span><span><i class="line server"></i>from the server</span></span>'
            )
            spec = plots.traffic(timeline, stalling)
            parts.append(self._figure(caption, "Bytes per second of each side over time", spec))
        if len(stalling):
            keys = join(
                fill('<span><i class="key {cause}"></i>{cause}</span>', cause=cause)
                for cause, one in self._found.summary.causes.items()
                if one.count
            )
            caption = fill('Streams stalled at a time <span class="legend">{keys}</span>', keys=keys)
            spec = plots.stalling(stalling, timeline)
            parts.append(self._figure(caption, "Number of stalled streams over time, by cause", spec))
        return join(parts)

    def _latencies(self) -> Markup:
        routes = self._sections.routes()
        figures: list[Markup] = []
        for which, caption in (("first", "Request to first answer"), ("total", "Request to end")):
            shown = [(name, route) for name, route in routes if getattr(route, which).count]
            if shown:
                description = f"{caption}: percentiles by route, in the table below"
                figures.append(self._figure(caption, description, plots.latencies(shown, which)))
        marks = zip("●■▲◆┃", plots.SHARES, strict=True)
        keys = join(
            fill('<span><b class="q{at}">{mark}</b>{share}</span>', at=at, mark=mark, share=share)
            for at, (mark, share) in enumerate(marks)
        )
        legend = fill('<p class="legend">{keys}</p>\n', keys=keys) if figures else ""
        return join((legend, fill('<div class="pair">{f}</div>\n', f=join(figures)), self._sections.latencies()))

    def _ladder(self) -> Markup:
        if not any(ladder.seen for ladder in self._found.details.ladders.values()):
            return Markup("<p>No frames of a stream.</p>\n")
        return Markup(
            '<div id="choice" class="choice" hidden><label>Connection <select id="conn"></select></label>'
            '<label>Stream <select id="stream"></select></label></div>\n<div id="drawn" aria-live="polite"></div>\n'
            "<noscript><p class=note>The ladder needs JavaScript.</p></noscript>\n"
        )

    def ladders(self) -> list[dict[str, Any]]:
        """Return the data of the ladders, for the script of the page."""
        return [self._ladder_data(ladder) for ladder in self._found.details.ladders.values()]

    def _ladder_data(self, ladder: Ladder) -> dict[str, Any]:
        stream, most = ladder.stream, self._bounds.text // 2
        ends = self._found.details.ends.get(stream["conn"], {})
        rows = Rows(ladder)
        made = rows.all()
        for row in made:
            if row[0] == "f":
                row[4] = "unknown" if row[4] is None else clean(row[4], 40)
            elif row[0] == "s":
                row.append(" ".join(("the", *blamed(row[3], row[4]))))
                row[3] = row[3] if row[3] in CAUSES else ""
        texts = {name: stream[name] for name in ("conn", "kind", "route", "ended", "requester")}
        texts |= {name: ends.get(name) for name in ("client", "server", "protocol")}
        return {name: None if text is None else clean(text, most) for name, text in texts.items()} | {
            "stream": stream["stream"],
            "start": rows.start,
            "stalled": stream["stalled_s"] or 0,
            "frames": ladder.seen,
            "rows": made,
        }


def _section(id_: str, name: str, content: Markup) -> Markup:
    return fill(
        '<section id="{id}" aria-labelledby="{id}-head"><h2 id="{id}-head">{name}</h2>\n{content}</section>\n',
        id=id_,
        name=name,
        content=content,
    )


def page(found: Collected, title: str, bounds: Bounds) -> str:
    """Return the HTML of a report."""
    made = _Page(found, bounds)
    body = made.body(title)
    assets = files("afflux.capture.report")
    style, script = ((assets / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return fill(
        _FRAME,
        policy=Markup(" ".join(f"'sha256-{_digest(one)}'" for one in (libraries(), script))),
        title=clean(title, bounds.text),
        style=Markup(style),
        body=body,
        data=script_json({"plots": made.plots, "ladders": made.ladders()}),
        libraries=Markup(libraries()),
        script=Markup(script),
    )


def _digest(script: str) -> str:
    return b64encode(sha256(script.encode()).digest()).decode()
