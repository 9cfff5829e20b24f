"""Draw the plots of a report with Altair. Colours are variables of the page's style sheet, so one plot serves light and
dark, screen and paper. The plots are specifications that the page renders; nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from afflux.capture.report.creditline import CreditLine, thin
from afflux.capture.report.summary import CAUSES, Cause, Route
from afflux.capture.report.timeline import Timeline
from afflux.capture.report.words import clock, count, seconds, size

__all__ = ["SHARES", "causes", "credit", "latencies", "stalling", "traffic"]

Spec = dict[str, Any]
"A Vega-Lite specification."

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
"The percentiles that are shown."
_UNBOUNDED: Final = 1 << 30
"Credit above this is shown as unbounded."
_AXIS_WIDTH: Final = 58
"Pixels left of the plots over time, so that they line up."

_FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--muted)",
        "titleColor": "var(--muted)",
        "gridColor": "var(--grid)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 4,
        "tickSize": 4,
    },
    "text": {"color": "var(--ink)", "fontSize": 11},
}
_CAUSE_COLOURS: Final = [f"var(--{cause})" for cause in CAUSES]
_SECONDS: Final = "format(datum.value, '~s') + 's'"


def _altair() -> Any:
    return import_module("altair")


def _spec(chart: Any, height: int | None = None) -> Spec:
    """Return the specification of a chart as wide as its place on the page."""
    sized = chart.properties(width="container", **({} if height is None else {"height": height}))
    made: Spec = sized.configure(**_CONFIG).to_dict()
    made.pop("$schema", None)
    return made


def causes(found: dict[str, Cause]) -> Spec:
    """Seconds of stalls by cause."""
    alt = _altair()
    values: list[dict[str, Any]] = [
        {"cause": cause, "seconds": one.seconds, "text": f"{seconds(one.seconds)} in {count(one.count)}"}
        for cause, one in found.items()
        if one.count
    ]
    most = max((value["seconds"] for value in values), default=1.0)
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("cause:N", sort=list(CAUSES), title=None, axis=alt.Axis(labelFontSize=12, labelColor="var(--ink)")),
        x=alt.X("seconds:Q", title=None, axis=None, scale=alt.Scale(domain=[0, most * 1.25 or 1])),
    )
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    bars = base.mark_bar(height={"band": 0.62}, cornerRadiusEnd=2).encode(color=colour)
    return _spec(bars + base.mark_text(align="left", dx=7).encode(text="text:N"), 30 * len(values))


def credit(line: CreditLine, stalls: Sequence[tuple[float, float, str]], most: int) -> Spec:
    """Items granted and items sent over time, with stalls as shaded (start, stop, cause); times in microseconds."""
    alt = _altair()
    start, points = line.points[0].ts, thin(line.points, most)
    used = max(1, max(point.used for point in points))
    ceiling = min(used * 4, max(point.granted for point in points)) * 1.08
    values = [
        {
            "at": (point.ts - start) / 1e6,
            "granted": min(point.granted, ceiling),
            "used": point.used,
            "text": f"{count(point.used)} sent, {granted(point.granted)} granted, {granted(point.balance)} left",
        }
        for point in points
    ]
    shades = [{"at": (low - start) / 1e6, "until": (high - start) / 1e6, "cause": cause} for low, high, cause in stalls]
    x = alt.X("at:Q", title="seconds since the first credit", axis=alt.Axis(tickCount=6, grid=False, format="~g"))
    scale = alt.Scale(domain=[0, ceiling], nice=False, clamp=True)
    y = alt.Y("granted:Q", title="items", scale=scale, axis=alt.Axis(tickCount=4, format="~s"))
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    base = alt.Chart(alt.Data(values=values))
    shaded = alt.Chart(alt.Data(values=shades)).mark_rect(opacity=0.26).encode(x=x, x2="until:Q", color=colour)
    room = base.mark_area(interpolate="step-after", color="var(--granted)", opacity=0.12).encode(x=x, y=y)
    given = base.mark_line(interpolate="step-after", color="var(--granted)", strokeWidth=1.75).encode(x=x, y=y)
    sent = base.mark_line(color="var(--used)", strokeWidth=1.75, strokeDash=[5, 2]).encode(x=x, y="used:Q")
    hover = base.mark_point(size=70, opacity=0).encode(x=x, y="used:Q", tooltip="text:N")
    return _spec(alt.layer(*([shaded] if shades else []), room, given, sent, hover), 170)


def granted(items: int) -> str:
    """Return an amount of credit in words."""
    return "unbounded" if items >= _UNBOUNDED else count(items)


def traffic(timeline: Timeline) -> Spec:
    """Bytes per second over time, of each side."""
    alt = _altair()
    values = [
        {"at": at, "until": at + timeline.width, "rate": rate, "side": side, "text": f"{side}: {size(rate)}/s"}
        for at, sums in timeline.rows()
        for side, rate in (("client", sums[0] / timeline.width * 1e6), ("server", sums[1] / timeline.width * 1e6))
    ]
    colours = alt.Scale(domain=["client", "server"], range=["var(--client)", "var(--server)"])
    y = alt.Y("rate:Q", stack=None, title="bytes per second", axis=_amounts(alt, "~s"))
    base = alt.Chart(alt.Data(values=_timed(values))).encode(
        x=_times(alt, timeline), y=y, color=alt.Color("side:N", scale=colours, legend=None)
    )
    dash = alt.StrokeDash("side:N", scale=alt.Scale(domain=["client", "server"], range=[[5, 2], [1, 0]]), legend=None)
    area = base.mark_area(interpolate="step-after", opacity=0.1)
    line = base.mark_line(interpolate="step-after", strokeWidth=1.5).encode(strokeDash=dash)
    return _spec(area + line + base.mark_point(opacity=0, size=60).encode(tooltip=["time:N", "text:N"]), 180)


def stalling(timeline: Timeline, like: Timeline) -> Spec:
    """How many streams were stalled over time, by cause, on the time axis of another plot."""
    alt = _altair()
    values = [
        {"at": at, "until": at + timeline.width, "stalled": sums[series] / timeline.width, "cause": cause}
        | {"order": series, "text": f"{cause}: {sums[series] / timeline.width:.3g} stalled"}
        for at, sums in timeline.rows()
        for series, cause in enumerate(CAUSES)
        if sums[series]
    ]
    colour = alt.Color("cause:N", scale=alt.Scale(domain=list(CAUSES), range=_CAUSE_COLOURS), legend=None)
    x = _times(alt, like if len(like) else timeline)
    y = alt.Y("stalled:Q", stack="zero", title="streams stalled", axis=_amounts(alt, "~g"))
    chart = alt.Chart(alt.Data(values=_timed(values))).mark_bar(clip=True, binSpacing=0)
    return _spec(chart.encode(x=x, x2="until:T", y=y, color=colour, order="order:Q", tooltip=["time:N", "text:N"]), 110)


def _amounts(alt: Any, form: str) -> Any:
    return alt.Axis(tickCount=4, format=form, minExtent=_AXIS_WIDTH, maxExtent=_AXIS_WIDTH)


def _times(alt: Any, timeline: Timeline) -> Any:
    """Return the time axis over all intervals of a timeline, in UTC."""
    starts = [at for at, _ in timeline.rows()]
    domain = [starts[0] / 1000, (starts[-1] + timeline.width) / 1000] if starts else [0, 1]
    scale = alt.Scale(type="utc", domain=domain, nice=False)
    return alt.X("at:T", title="UTC", scale=scale, axis=alt.Axis(grid=False, tickCount=7, labelOverlap=True))


def _timed(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert times from microseconds to the milliseconds of Vega, and add them in words."""
    return [
        value | {"time": clock(value["at"]), "at": value["at"] / 1000, "until": value["until"] / 1000}
        for value in values
    ]


def latencies(routes: Sequence[tuple[str, Route]], which: str) -> Spec:
    """Percentiles by route on a logarithmic axis; ``which`` is ``first`` or ``total``."""
    alt = _altair()
    values = [
        {"route": name, "share": share, "seconds": max(value, 1e-9), "text": f"{share} {seconds(value)}"}
        for name, route in routes
        for share, at in SHARES.items()
        if (value := getattr(route, which).at(at)) is not None
    ]
    names, shares = [name for name, _ in routes], list(SHARES)
    axis = alt.Axis(labelLimit=190, ticks=False, domain=False, labelColor="var(--ink)", labelFontSize=12)
    y = alt.Y("route:N", sort=names, title=None, axis=axis, scale=alt.Scale(domain=names))
    ticks = alt.Axis(labelExpr=_SECONDS, tickCount=5, labelOverlap=True)
    x = alt.X("seconds:Q", title=None, scale=alt.Scale(type="log", padding=10), axis=ticks)
    colours = alt.Scale(domain=shares, range=[f"var(--q{at})" for at in range(len(shares))])
    shapes = alt.Scale(domain=shares, range=["circle", "square", "triangle-up", "diamond", "stroke"])
    base = alt.Chart(alt.Data(values=values))
    line = base.mark_rule(color="var(--line)", strokeWidth=2).encode(y=y, x="min(seconds):Q", x2="max(seconds):Q")
    dots = base.mark_point(filled=True, size=75, opacity=1, strokeWidth=2, stroke="var(--ink)").encode(
        y=y,
        x=x,
        color=alt.Color("share:N", scale=colours, legend=None),
        shape=alt.Shape("share:N", scale=shapes, legend=None),
        tooltip=["route:N", "text:N"],
    )
    return _spec(line + dots, 26 * len(names) + 4)
