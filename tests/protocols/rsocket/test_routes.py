"""The table of a broker: one connection for each route, newer changes only, and who is chosen."""

from __future__ import annotations

import pytest

from afflux.core.errors import LimitExceeded, Violation
from afflux.protocols.rsocket.codes import Code
from afflux.protocols.rsocket.metadata.broker import Address, RouteJoin, RouteRemove
from afflux.protocols.rsocket.routes import RouteTable, route_text

BROKER = bytes(16)


def id_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


def join(number: int, time: int = 1, name: str = "svc", **tags: str) -> RouteJoin:
    return RouteJoin(BROKER, id_of(number), time, name, tags)


def table(count: int = 3) -> RouteTable[str]:
    made: RouteTable[str] = RouteTable()
    for number in range(count):
        made.join(join(number, Zone="ab"[number % 2]), str(number))
    return made


def chosen(table: RouteTable[str], address: Address) -> list[str]:
    return [member.target for member in table.choose(address)]


def test_R_61_a_route_has_one_connection() -> None:
    routes = table(1)
    assert routes.join(join(0, 2, "other"), "newer")
    assert len(routes) == 1
    assert chosen(routes, Address({"ServiceName": "other"})) == ["newer"]
    assert chosen(routes, Address({"ServiceName": "svc"})) == []


def test_R_62_only_newer_changes_count() -> None:
    routes = table(1)
    assert not routes.join(join(0, 1), "same time")
    assert not routes.remove(RouteRemove(BROKER, id_of(0), 1))
    assert routes.remove(RouteRemove(BROKER, id_of(0), 3))
    assert not routes.join(join(0, 3), "before it was removed")
    assert routes.find(id_of(0)) is None
    assert routes.join(join(0, 4), "back")
    found = routes.find(id_of(0))
    assert found is not None
    assert (found.target, found.timestamp, found.name) == ("back", 4, "svc")
    assert not routes.remove(RouteRemove(BROKER, id_of(0), 3))


def test_R_62_a_route_that_never_was_is_removed_until_something_newer_comes() -> None:
    routes = table(0)
    assert routes.remove(RouteRemove(BROKER, id_of(7), 5))
    assert not routes.join(join(7, 4), "late")
    assert routes.remove(RouteRemove(BROKER, id_of(7), 6))


def test_R_62_what_is_remembered_is_bounded() -> None:
    routes: RouteTable[str] = RouteTable(tombstones=2)
    for number in range(3):
        routes.remove(RouteRemove(BROKER, id_of(number), 5))
    assert routes.join(join(0, 4), "forgotten")
    assert not routes.join(join(1, 4), "remembered")


def test_R_63_a_route_has_every_tag() -> None:
    routes = table()
    everyone = Address({"ServiceName": "svc"}, method="multicast")
    assert chosen(routes, everyone) == ["0", "1", "2"]
    assert chosen(routes, Address({"ServiceName": "svc", "Zone": "a"}, method="multicast")) == ["0", "2"]
    assert chosen(routes, Address({"ServiceName": "svc", "Zone": "c"}, method="multicast")) == []
    assert chosen(routes, Address({"ServiceName": "other", "Zone": "a"})) == []
    assert chosen(routes, Address(method="multicast")) == ["0", "1", "2"]


def test_R_63_name_and_id_are_added_unless_they_are_there() -> None:
    routes = table()
    assert route_text(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert chosen(routes, Address({"RouteId": route_text(id_of(1))})) == ["1"]
    routes.join(join(5, ServiceName="said"), "5")
    assert chosen(routes, Address({"ServiceName": "said"})) == ["5"]
    assert "5" not in chosen(routes, Address({"ServiceName": "svc"}, method="multicast"))


def test_R_63_hints_are_tags_like_any_other_but_in_a_shard() -> None:
    hints = {"ServiceName": "svc", "LBMethod": "random"}
    assert chosen(table(1), Address(hints)) == []
    assert chosen(table(1), Address(hints | {"ShardKey": "ServiceName"}, method="shard")) == []
    shards = {"Zone": "a", "ShardMethod": "any", "UserId": "1", "ShardKey": "UserId"}
    assert chosen(table(1), Address(shards, method="shard")) == ["0"]


def test_R_67_one_is_chosen_and_each_has_its_turn() -> None:
    routes = table()
    service, zone = Address({"ServiceName": "svc"}), Address({"Zone": "a"})
    assert [chosen(routes, service) for _ in range(4)] == [["0"], ["1"], ["2"], ["0"]]
    assert [chosen(routes, zone) for _ in range(3)] == [["2"], ["0"], ["2"]]


def test_R_67_the_choice_can_be_given() -> None:
    routes: RouteTable[str] = RouteTable(pick=lambda found: found[-1])
    for number in range(3):
        routes.join(join(number), str(number))
    assert [chosen(routes, Address({"ServiceName": "svc"})) for _ in range(2)] == [["2"], ["2"]]


def shard(user: str, key: str = "UserId") -> Address:
    return Address({"ServiceName": "svc", "UserId": user, "ShardKey": key}, method="shard")


@pytest.mark.parametrize(
    "address",
    [
        shard("1", "Zone"),
        Address({"ServiceName": "svc", "UserId": "1"}, method="shard"),
        Address([("UserId", "1"), ("ShardKey", None)], method="shard"),
        Address({"UserId": "1"}, metadata={"ShardKey": "Device"}, method="shard"),
    ],
    ids=["another tag", "no key", "no value", "in metadata"],
)
def test_R_68_a_shard_key_names_a_tag_of_the_request(address: Address) -> None:
    with pytest.raises(Violation, match="ShardKey") as caught:
        table().choose(address)
    assert (caught.value.rule, caught.value.code) == ("R-68", Code.INVALID)


def test_R_68_a_value_stays_with_its_route() -> None:
    routes, again = table(8), table(8)
    users = [str(number) for number in range(64)]
    before = {user: chosen(routes, shard(user))[0] for user in users}
    assert before == {user: chosen(again, shard(user, "io.rsocket.routing.UserId"))[0] for user in users}
    assert len(set(before.values())) == 8
    routes.remove(RouteRemove(BROKER, id_of(3), 9))
    assert all(chosen(routes, shard(user)) == [before[user]] for user in users if before[user] != "3")
    assert chosen(table(0), shard("1")) == []
    with_metadata = Address({"ServiceName": "svc", "UserId": "1"}, metadata={"ShardKey": "UserId"}, method="shard")
    assert chosen(again, with_metadata) == [before["1"]]


def test_the_table_is_bounded() -> None:
    routes: RouteTable[str] = RouteTable(routes=2)
    routes.join(join(0), "0")
    routes.join(join(1), "1")
    with pytest.raises(LimitExceeded, match="too-many-routes"):
        routes.join(join(2), "2")
    assert routes.join(join(1, 2), "one that is there may change")
    routes.remove(RouteRemove(BROKER, id_of(0), 2))
    assert routes.join(join(2), "2")


def test_the_tags_of_a_route_are_bounded() -> None:
    routes: RouteTable[str] = RouteTable(tags=2)
    assert routes.join(join(0, 1, a="", b=""), "as many as there may be")
    with pytest.raises(LimitExceeded, match="too-many-tags: a route has 2 at most, not 3"):
        routes.join(join(0, 2, a="", b="", c=""), "one more")
    assert chosen(routes, Address({"a": ""})) == ["as many as there may be"]
