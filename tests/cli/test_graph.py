"""The graph of credit: what it counts, and that it stays small however long a stream is."""

from __future__ import annotations

from afflux.cli.graph import WIDTH, Graph, spark
from tests.cli.running import Server
from tests.cli.terminal import Terminal


def test_heights_are_against_the_largest() -> None:
    assert spark([0, 1, 4, 8]) == " ▁▄█"[:1] + spark([1, 4, 8])
    assert spark([8]) == "█"
    assert spark([]) == ""
    assert spark([0, 0]) == "  "


def test_credit_is_what_was_granted_and_not_used() -> None:
    graph = Graph(start=0.0, step=1.0)
    graph.grant(4, 0.0)
    for moment in (0.1, 1.1, 1.2):
        graph.item(moment)
    graph.grant(2, 2.0)
    assert (graph.granted, graph.used) == (6, 3)
    first, opened, items = graph.lines()
    assert "granted 6, used 3" in first
    assert "up to 3" in opened
    assert "1 per second" in items


def test_a_long_stream_takes_no_more_columns() -> None:
    graph = Graph(start=0.0, step=0.01)
    for moment in range(10_000):
        graph.grant(1, float(moment))
        graph.item(float(moment))
    drawn = graph.lines()[2].removeprefix("items ").partition(" ")[0]
    assert len(drawn) <= WIDTH
    assert (graph.granted, graph.used) == (10_000, 10_000)


def test_the_graph_of_an_interrupted_stream_begins_a_line() -> None:
    words = ["--stream", "-d", '{"count": 100000}', "--delay", "10ms", "--graph"]
    with Server("--demo") as server, Terminal(["request", server.uri, *words]) as terminal:
        terminal.until("\n2\n")
        terminal.type("\x03")
        code, shown = terminal.end()
    assert code == 130
    assert "^C\ncredit granted 256, used " in shown
