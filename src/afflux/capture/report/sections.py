"""Write the sections of a report that are text and tables: they read without scripts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from afflux.capture.order import warning
from afflux.capture.report.bounds import Bounds
from afflux.capture.report.collected import Collected
from afflux.capture.report.columns import OTHERS, Row
from afflux.capture.report.markup import NUMBER, Markup, fill, join, table
from afflux.capture.report.percentiles import PRECISION, Percentiles
from afflux.capture.report.plots import SHARES
from afflux.capture.report.summary import Route
from afflux.capture.report.words import BLAME, blamed, clean, clock, count, date, seconds, size
from afflux.capture.wording import by_side, coded, unseen

__all__ = ["Sections", "absent"]

_CLOSINGS: Final = {"fin": "FIN", "rst": "RST", "open": "still open", "dropped": "not followed"}


class Sections:
    """The sections of one page."""

    def __init__(self, found: Collected, bounds: Bounds) -> None:
        self._found = found
        self._bounds = bounds
        self._summary = found.summary
        first, last = found.summary.first, found.summary.last
        self._days = first is not None and last is not None and date(first) != date(last)
        self._ladders = {key: at for at, key in enumerate(found.details.ladders)}

    # -- parts of text --------------------------------------------------------------------------------------

    def _text(self, value: object) -> str | None:
        """Return a text of the capture, cut; None stays None."""
        return None if value is None else clean(value, self._bounds.text)

    def _code(self, value: object) -> Markup | None:
        return None if value is None else fill("<code>{value}</code>", value=self._text(value))

    def _clock(self, micros: int | None) -> Markup:
        return fill('<span class="time">{at}</span>', at=clock(micros, days=self._days))

    def _stream(self, row: Row) -> Markup:
        """Return the name of a stream, as a link to its ladder if there is one."""
        name = "connection" if row["stream"] == -1 else count(row["stream"]).replace(",", "")
        at = self._ladders.get((row["conn"], row["stream"]))
        return fill("{name}", name=name) if at is None else fill('<a href="#ladder-{at}">{name}</a>', at=at, name=name)

    def _end(self, row: Row, side: str) -> str | None:
        """Return the address of the client or the server of a row's connection; None if it is unknown."""
        ends = self._found.details.ends.get(row["conn"])
        return self._text(ends[side]) if ends is not None and side in ends else None

    def _left_out(self, shown: int, all_of_them: int, what: str) -> Markup:
        if all_of_them <= shown:
            return Markup()
        return fill(
            '<p class="note">{shown} of {all} {what}.</p>\n', shown=count(shown), all=count(all_of_them), what=what
        )

    # -- the head -------------------------------------------------------------------------------------------

    def head(self, title: str) -> Markup:
        """Return the title, the time of the capture and its figures."""
        summary = self._summary
        if summary.first is None or summary.last is None:
            when: str | Markup = "No packet with a time."
        else:
            when = fill(
                "{date}, {first} to {last} UTC, {lasted}",
                date=date(summary.first),
                first=clock(summary.first),
                last=clock(summary.last, days=self._days),
                lasted=seconds((summary.last - summary.first) / 1e6),
            )
        stalls, lost = summary.seen["stalls"], summary.totals["lost_bytes"]
        wrong = sum(one.count for one in summary.broken.values.values())
        frames = summary.totals["frames"] or self._found.traffic.frames
        figures = [
            ("Connections", count(summary.seen["connections"]), "", {"connections"}),
            ("Streams", count(summary.seen["streams"]), "", {"streams"}),
            ("Frames", count(frames), "", {"connections", "frames"}),
            ("Data", size(summary.totals["bytes"]), "", {"connections"}),
            ("Stalls", count(stalls), "bad" if stalls else "good", {"stalls"}),
            ("Violations", count(wrong), "bad" if wrong else "good", {"violations"}),
            *([("Lost", size(lost), "bad", {"connections"})] if lost else []),
        ]
        tiles = join(
            fill('<div class="{kind}"><dt>{name}</dt><dd>{value}</dd></div>', kind=kind, name=name, value=value)
            for name, value, kind, tables in figures
            if not tables <= self._found.absent
        )
        return fill(
            '<header><h1>{title}</h1>\n<p class="when">{when}</p>\n<dl class="tiles">{tiles}</dl>{absent}</header>\n',
            title=clean(title, self._bounds.text),
            when=when,
            tiles=tiles,
            absent=absent(self._found.absent),
        )

    def lost(self) -> Markup:
        """Return what the capture lacks; nothing if it is whole."""
        totals, cut = self._summary.totals, self._summary.lost.largest(lambda one: one.count)
        lines = []
        if totals["lost_bytes"]:
            lines.append(
                f"The capture lacks {size(totals['lost_bytes'])} of {_connections(totals['lossy'])}. Stalls, ends "
                "and broken rules are told only as far as nothing that is missing may explain them."
            )
        if totals["one_way"]:
            lines.append(f"Data in one direction only: {_connections(totals['one_way'])}, of which no stalls are told.")
        if totals["disordered"]:
            late = self._summary.late
            text = warning(totals["disordered"], self._text(late["file"]) or "", late["packet"])
            lines.append(f"{text[0].upper()}{text[1:]}.")
        made = [fill('<p class="lead">{line}</p>\n', line=line) for line in lines]
        if cut:
            shown = cut[: self._bounds.violations]
            heads: list[str | tuple[str, str]] = [
                ("Count", NUMBER),
                "Rule",
                "Frame",
                "What is missing",
                "",
                ("Stream", NUMBER),
                "Where",
            ]
            rows = (self._violation(key, one.count, one.example) for key, one in shown)
            made += [
                table("Frames that are not whole, and connections that are not decoded", heads, rows),
                self._left_out(len(shown), len(cut), "kinds"),
            ]
        return join(made)

    # -- stalls ---------------------------------------------------------------------------------------------

    def stalls(self) -> Markup:
        """Return who stopped which stream."""
        longest = self._summary.stalls.rows
        if not longest:
            return Markup('<p class="lead">No stream stalled.</p>\n')
        stalled, all_of_them = self._summary.totals["stalled_streams"], self._summary.seen["streams"]
        return join(
            (
                self._headline(longest[0]),
                Markup()
                if "streams" in self._found.absent
                else fill(
                    "<p>{stalled} of {all} streams stalled.</p>\n", stalled=count(stalled), all=count(all_of_them)
                ),
                table(
                    "The longest stalls",
                    [
                        *(("Stalled", NUMBER), ("Stream", NUMBER), "Route", "Who", "What it did"),
                        *("Began after", ("At (UTC)", NUMBER), "Resumed by"),
                    ],
                    (self._stall(row) for row in longest),
                ),
                self._left_out(len(longest), self._summary.seen["stalls"], "stalls, the longest"),
            )
        )

    def _headline(self, row: Row) -> Markup:
        side, did = blamed(row["cause"], row["dir"])
        if side == "unknown":
            text = (
                '<p class="lead">Stream {stream} stood still for <b>{lasted}</b>; the capture does not show why.</p>\n'
            )
            return fill(text, stream=self._stream(row), lasted=seconds(row["seconds"]))
        end = self._end(row, side)
        return fill(
            '<p class="lead">The <b>{side}</b>{end} stopped stream {stream}{route} for <b>{lasted}</b>: '
            "it {did}. The stall began after {frame} at {at}.</p>\n",
            side=side,
            end="" if end is None else fill(" <code>{end}</code>", end=end),
            stream=self._stream(row),
            route="" if row["route"] is None else fill(" ({route})", route=self._code(row["route"])),
            lasted=seconds(row["seconds"]),
            did=did,
            frame=self._after(row),
            at=self._clock(row["start"]),
        )

    def _after(self, row: Row) -> Markup:
        """Return the frame after which a stall began: its type, sender and position."""
        if row["after_type"] is None:
            return Markup("the start")
        side = {">": "client", "<": "server"}.get(row["after_dir"], "unknown side")
        place = "" if row["after_offset"] is None else f", byte {count(row['after_offset'])}"
        return fill(
            '<code>{type}</code> <span class="from">from the {side}{place}</span>',
            type=self._text(row["after_type"]),
            side=side,
            place=place,
        )

    def _stall(self, row: Row) -> list[object]:
        side, did = blamed(row["cause"], row["dir"])
        end = self._end(row, side)
        return [
            fill("<b>{lasted}</b>", lasted=seconds(row["seconds"])),
            self._stream(row),
            self._code(row["route"]),
            side if end is None else fill('{side} <code class="end">{end}</code>', side=side, end=end),
            fill('<i class="key {cause}"></i>{did}', cause=self._cause(row["cause"]), did=did),
            self._after(row),
            self._clock(row["start"]),
            self._code(row["resumed_by"]) or "the end",
        ]

    @staticmethod
    def _cause(cause: str | None) -> str:
        """Return the class of a cause; never a text of the capture."""
        return cause if cause in BLAME else ""

    def causes(self) -> Markup:
        """Return the table of causes."""
        found = [(cause, one) for cause, one in self._summary.causes.items() if one.count]
        if not found:
            return Markup()
        return table(
            "The causes and what they mean",
            ["Cause", ("Stalls", NUMBER), ("In all", NUMBER), ("Longest", NUMBER), "Meaning"],
            (
                [
                    fill('<i class="key {cause}"></i>{cause}', cause=cause),
                    *(count(one.count), seconds(one.seconds), seconds(one.longest), BLAME[cause][2]),
                ]
                for cause, one in found
            ),
        )

    # -- traffic and latencies ------------------------------------------------------------------------------

    def traffic(self) -> Markup:
        """Return the peak of the traffic in words."""
        timeline = self._found.traffic.timeline
        if not len(timeline):
            return Markup("<p>No frames with a time.</p>\n")
        peaks = []
        for series, side in enumerate(("client", "server")):
            at, most = max(((at, sums[series]) for at, sums in timeline.rows()), key=lambda one: one[1])
            if most:
                rate = size(most / timeline.width * 1e6)
                peaks.append(fill("{rate}/s from the {side} at {at}", rate=rate, side=side, at=self._clock(at)))
        return fill(
            "<p>Peaks: {peaks}; each interval is {width}. Lengths of frames are counted.</p>\n",
            peaks=join(peaks, " and "),
            width=seconds(timeline.width / 1e6),
        )

    def routes(self) -> list[tuple[str, Route]]:
        """Return the routes with the most requests, each with its name."""
        largest = self._summary.routes.largest(lambda route: route.requests)
        return [(_route(key, self._bounds.text // 3), route) for key, route in largest[: self._bounds.routes]]

    def latencies(self) -> Markup:
        """Return the tables of latencies."""
        routes = self.routes()
        if not routes:
            return Markup("<p>No requests.</p>\n")
        columns: list[str | tuple[str, str]] = ["Route", ("Count", NUMBER), *((share, NUMBER) for share in SHARES)]
        first = table("From the request to the first answer", columns, _shares(routes, "first"))
        total = table("From the request to the end", columns, _shares(routes, "total"))
        note = fill(
            '<p class="note">Percentiles are exact to {precision} %; the maximum is exact.</p>\n',
            precision=f"{PRECISION * 100:.1f}",
        )
        shown = len(self._summary.routes.values)
        return join((first, total, self._left_out(len(routes), shown, "routes, those with the most requests"), note))

    # -- violations, streams, connections -------------------------------------------------------------------

    def violations(self) -> Markup:
        """Return the table of violations."""
        broken = self._summary.broken.largest(lambda one: one.count)
        if not broken:
            return Markup("<p>No violations.</p>\n")
        shown = broken[: self._bounds.violations]
        made = table(
            "Violations, with the first example of each",
            [
                *(("Count", NUMBER), "Rule", "Frame", "What was wrong", "What would be right"),
                *(("Stream", NUMBER), "Where"),
            ],
            (self._violation(key, one.count, one.example) for key, one in shown),
        )
        return join((made, self._left_out(len(shown), len(broken), "kinds of violations, the most frequent")))

    def _violation(self, key: object, number: int, row: Row) -> list[object]:
        side = {">": "client", "<": "server"}.get(row["dir"] or "", "")
        places = [f"byte {count(row['offset'])}" if row["offset"] is not None else ""]
        places += [f"packet {count(row['packet'])}" if row["packet"] is not None else ""]
        places += [f"{self._text(row['file'])}" if row["file"] is not None else ""]
        of = fill('<span class="from">from the {side}</span>', side=side) if side else ""
        several = "several: " if key == OTHERS else ""
        return [
            count(number),
            fill(
                "{several}{rule} <span class=from>{kind}</span>",
                several=several,
                rule=self._code(row["rule"]) or "",
                kind=self._text(row["kind"]) or "",
            ),
            fill("{type} {of}", type=self._code(row["type"]) or "unknown", of=of),
            self._text(row["reason"]),
            self._text(row["expected"]),
            self._stream(row),
            ", ".join(filter(None, places)) or None,
        ]

    def streams(self) -> Markup:
        """Return the streams that stalled most or failed, with their history."""
        summary = self._summary
        ends: dict[str, list[str]] = {}
        for (kind, ended), number in summary.kinds.most_common(24):
            ends.setdefault(kind, []).append(f"{count(number)} {clean(ended, 24)}")
        kinds = "; ".join(f"{clean(kind, 24)} {', '.join(texts)}" for kind, texts in ends.items())
        text = fill("<p>Streams by kind and end: {kinds}.</p>\n", kinds=kinds or "none")
        if not summary.worst.rows:
            return text
        made = table(
            "Streams that stalled most, then those that failed",
            [
                *(("Stream", NUMBER), "Client", "Kind", "Route", "History", ("Items in, out", NUMBER)),
                *(("Stalled", NUMBER), "Ended", ("First to last frame", NUMBER)),
            ],
            (self._worst(row) for row in summary.worst.rows),
        )
        note = Markup(
            '<p class="note">History has one letter a frame, upper case for the side that opened the stream.</p>\n'
        )
        left = self._left_out(len(summary.worst.rows), summary.worst.seen, "streams that stalled or failed")
        return join((text, made, left, note))

    def _worst(self, row: Row) -> list[object]:
        known = row["first"] is not None and row["last"] is not None
        stalled = f"{seconds(row['stalled_s'])} in {count(row['stalls'])}" if row["stalls"] else None
        code = "" if row["code"] is None else f" {coded(row['protocol'], row['code'])}"
        history = row["history"] if row["history"] is None else clean(row["history"], 40)
        client = self._end(row, "client")
        return [
            self._stream(row),
            None if client is None else fill('<code class="end">{end}</code>', end=client),
            row["kind"],
            self._code(row["route"]),
            self._code(history),
            f"{count(row['items_in'])}, {count(row['items_out'])}",
            stalled,
            f"{self._text(row['ended']) or 'unknown'}{code}",
            seconds((row["last"] - row["first"]) / 1e6) if known else None,
        ]

    def connections(self) -> Markup:
        """Return the connections by content, and those with violations or the most bytes."""
        summary = self._summary
        if not summary.seen["connections"]:
            return Markup("<p>No connections.</p>\n")
        contents = table(
            "Connections by content",
            ["Content", ("Connections", NUMBER), ("Data", NUMBER)],
            (
                [
                    "others" if key == OTHERS else self._text(key),
                    *(count(one["connections"]), size(one["bytes"])),
                ]
                for key, one in summary.contents.largest(lambda one: one["connections"])[: self._bounds.connections]
            ),
        )
        rows = summary.connections.rows
        made = table(
            "Connections",
            [
                *("Client", "Server", "Content", "Closed", ("From client", NUMBER), ("From server", NUMBER)),
                *(("Streams", NUMBER), ("Violations", NUMBER), ("Lost", NUMBER), ("Opened (UTC)", NUMBER)),
            ],
            (self._connection(row) for row in rows),
        )
        what = "connections: those with violations, then those with streams, then those with the most data"
        return join((contents, made, self._left_out(len(rows), summary.seen["connections"], what)))

    def _connection(self, row: Row) -> list[object]:
        content = self._text(row["content"] or row["protocol"])
        return [
            *(fill('<code class="end">{end}</code>', end=self._text(row[side])) for side in ("client", "server")),
            f"{content} (one direction)" if unseen(row) else content,
            _CLOSINGS.get(row["closing"], "") + by_side(row),
            *(size(row["client_bytes"]), size(row["server_bytes"]), count(row["streams"]), count(row["violations"])),
            size(row["lost_bytes"]) if row["lost_bytes"] else None,
            self._clock(row["opened"]),
        ]

    # -- the end --------------------------------------------------------------------------------------------

    def notes(self) -> Markup:
        """Return what the page leaves out."""
        bounds, found = self._bounds, self._found
        grouped = found.summary.routes.values, found.summary.broken.values, found.summary.contents.values
        lines = [
            f"Ladders exist for {count(len(self._ladders))} of {count(found.summary.seen['streams'])} streams: those "
            "with the longest stalls, then those that failed, then the longest.",
            f"A ladder has at most {bounds.ladder_rows} arrows: the first, the last and those around the longest "
            "pauses. Frames of one type and direction in a row are one arrow.",
            f"Credit is plotted for at most {bounds.credit_plots} streams, with at most {bounds.credit_points} points.",
            f"Plots over time have at most {bounds.times} intervals. Texts are cut after {bounds.text} characters.",
        ]
        if "streams" in found.absent:
            del lines[0]
        if any(OTHERS in values for values in grouped):
            lines.append(f"Only {bounds.groups} routes, kinds of violations or contents were counted separately.")
        if found.unkept:
            lines.append(
                f"The tables were read only once: {count(found.unkept)} frames and events of credit at the end are "
                "in no ladder and no plot of credit."
            )
        return fill("<ul>{lines}</ul>\n", lines=join(fill("<li>{line}</li>", line=line) for line in lines))


def absent(names: Collection[str]) -> Markup:
    """Return that tables are not there; nothing if there are no names."""
    return (
        fill('<p class="lead">Not in these tables: {said}.</p>\n', said=", ".join(sorted(names))) if names else Markup()
    )


def _connections(number: int) -> str:
    return "1 connection" if number == 1 else f"{count(number)} connections"


def _route(key: tuple[str | None, str | None] | str, most: int) -> str:
    """Return the name of a route and its kind, the route cut after ``most`` characters."""
    if key == OTHERS or isinstance(key, str):
        return "other routes"
    route, kind = key
    shown = "no route " if route is None else f"{clean(route, most)} "
    return f"{shown}({clean(kind or 'unknown', 24)})"


def _shares(routes: list[tuple[str, Route]], which: str) -> Iterator[list[object]]:
    """Yield the rows of a table of latencies."""
    for name, route in routes:
        found: Percentiles = getattr(route, which)
        yield [name, count(found.count), *(seconds(found.at(share)) for share in SHARES.values())]
