"""Programs for the type checkers: those that follow a session type, and those that do not. Contains no tests."""

from __future__ import annotations

__all__ = ["ACCEPTED", "REJECTED", "TYPES"]

TYPES = """
/// Adds numbers
/// until Done.
channel sum =
    recv int ->
    offer
        | sum
        | recv Done ->
          send int ->
          end

struct Done {}
struct Order { item: string, count: uint, paid: Paid }
/// How it was paid.
enum Paid { cash(Done), card(string) }

channel shop =
    recv Order ->
    choose
        | send "sold out" ->
          end
        | sum
        | send double ->
          offer
              | shop
              | recv true -> send float -> end
              | end

channel long = recv int -> recv int -> recv string -> recv string -> recv bool -> recv bool -> recv double ->
    recv double -> recv Order -> recv Order -> choose | end | long | offer | end | long
channel nothing = end
channel numbers = recv Order -> choose | more | send string -> end
channel more = send int -> choose | more | send string -> end
"""

ACCEPTED = """
async def number(chan: Chan[NumbersServer], values: list[int]) -> None:
    _, choice = await chan.recv()
    await choice.loop().send_each(values)
    await choice.loop().send_each(value for value in range(3))
    last = await choice.choose(2)
    await (await last.send("done")).end()


async def numbered(chan: Chan[NumbersClient], order: Order) -> int:
    total, offer = 0, await chan.send(order)
    async for value in offer.loop().recv_each():
        total += assert_type(value, int)
    match await offer.offer():
        case (1, again):
            value, offer = await again.recv()
            total += value
        case (2, last):
            text, end = await last.recv()
            assert_type(text, str)
            await end.end()
    return total


async def add(chan: Chan[SumServer]) -> None:
    total = 0
    while True:
        value, choice = await chan.recv()
        total += value
        match await choice.offer():
            case (1, again):
                chan = again
            case (2, last):
                done, answer = await last.recv()
                assert_type(done, Done)
                end = await answer.send(total)
                return await end.end()


async def add_with_if(chan: Chan[SumServer]) -> None:
    value, choice = await chan.recv()
    branch = await choice.offer()
    if branch[0] == 1:
        await add_with_if(branch[1])
    else:
        _, answer = await branch[1].recv()
        await (await answer.send(value)).end()


async def ask(chan: Chan[SumClient], values: list[int]) -> int:
    choice = await chan.send(values[0])
    for value in values[1:]:
        again = await choice.choose(1)
        choice = await again.send(value)
    last = await choice.choose(2)
    answer = await last.send(Done())
    total, end = await answer.recv()
    await end.end()
    return total


async def sell(chan: Chan[ShopServer]) -> None:
    order, choice = await chan.recv()
    match order.paid:
        case ("card", number):
            assert_type(number, str)
        case ("cash", done):
            assert_type(done, Done)
    if order.count > 3:
        sold_out = await choice.choose(1)
        await (await sold_out.send("sold out")).end()
    elif order.count > 2:
        await add(await choice.choose(2))
    else:
        offer = await (await choice.choose(3)).send(1.5)
        branch = await offer.offer()
        if branch[0] == 1:
            await sell(branch[1])
        elif branch[0] == 2:
            yes, price = await branch[1].recv()
            assert_type(yes, bool) if False else None
            await (await price.send(2)).end()
        else:
            await branch[1].end()


async def buy(chan: Chan[ShopClient]) -> None:
    offer = await chan.send(Order("tea", 1, ("card", "123")))
    branch = await offer.offer()
    if branch[0] == 3:
        price, choice = await branch[1].recv()
        assert_type(price, float)
        await (await choice.choose(3)).end()


async def by_hand(chan: Chan[Recv[int, Send[str, End]]]) -> None:
    value, reply = await chan.recv()
    await (await reply.send(str(value))).end()


Ten = Choose[End, End, End, End, End, End, End, End, End, Send[int, End]]


async def ten(chan: Chan[Ten]) -> None:
    await (await (await chan.choose(10)).send(1)).end()


async def ten_offers(chan: Chan[Offer[End, End, End, End, End, End, End, End, End, Recv[int, End]]]) -> None:
    branch = await chan.offer()
    if branch[0] == 10:
        value, end = await branch[1].recv()
        assert_type(value, int)
        await end.end()
    else:
        await branch[1].end()


async def opens(peer: afflux.Peer) -> int:
    async with peer.open(SUM) as chan:
        assert_type(chan, Chan[SumClient])
        return await ask(chan, [1, 2])


def opens_and_blocks(peer: afflux.sync.Peer) -> int:
    with peer.open(SUM) as chan:
        choice = chan.send(1).choose(1).send(2)
        total, end = choice.choose(2).send(Done()).recv()
        assert_type(total, int)
        end.end()
        return total


afflux.Router().session(SUM)(add)
"""

REJECTED = """
async def wrong_loops(chan: Chan[NumbersServer], other: Chan[NumbersClient], order: Order, text: list[str]) -> None:
    await chan.loop().send_each([1])  # error
    _, choice = await chan.recv()
    await choice.loop().send_each(text)  # error
    choice.loop().recv_each()  # error
    offer = await other.send(order)
    await offer.loop().send_each([1])  # error
    async for value in offer.loop().recv_each():
        assert_type(value, str)  # error


async def sends_instead_of_receiving(chan: Chan[SumServer]) -> None:
    await chan.send(1)  # error


async def receives_instead_of_sending(chan: Chan[SumClient]) -> None:
    await chan.recv()  # error


async def sends_another_value(chan: Chan[SumClient]) -> None:
    await chan.send("1")  # error


async def sends_another_constant(chan: Chan[ShopServer]) -> None:
    _, choice = await chan.recv()
    sold_out = await choice.choose(1)
    await sold_out.send("sold")  # error


async def ends_too_early(chan: Chan[SumClient]) -> None:
    choice = await chan.send(1)
    await choice.end()  # error


async def chooses_a_branch_that_is_not_there(chan: Chan[SumClient]) -> None:
    choice = await chan.send(1)
    await choice.choose(3)  # error


async def chooses_instead_of_offering(chan: Chan[SumServer]) -> None:
    _, choice = await chan.recv()
    await choice.choose(1)  # error


async def offers_instead_of_choosing(chan: Chan[SumClient]) -> None:
    choice = await chan.send(1)
    await choice.offer()  # error


async def takes_one_branch_for_another(chan: Chan[SumServer]) -> None:
    _, choice = await chan.recv()
    match await choice.offer():
        case (1, again):
            await again.send(1)  # error
        case (2, last):
            await last.send(1)  # error


async def does_not_look_at_the_branch(chan: Chan[SumServer]) -> None:
    _, choice = await chan.recv()
    branch = await choice.offer()
    value, _ = await branch[1].recv()
    value + 1  # error


async def returns_another_type(chan: Chan[SumServer]) -> str:
    value, _ = await chan.recv()
    return value  # error


async def opens_the_other_side(chan: Chan[SumServer]) -> None:
    await takes_a_client(chan)  # error


async def takes_a_client(chan: Chan[SumClient]) -> None:
    last = await (await chan.send(1)).choose(2)
    await last.send(1)  # error


async def sends_an_incomplete_struct(chan: Chan[ShopClient]) -> None:
    await chan.send(Order("tea", 1, ("cheque", "123")))  # error


async def uses_the_endpoint_before_the_step(chan: Chan[SumClient]) -> None:
    choice = await chan.send(1)
    await choice.send(2)  # error


async def goes_on_after_the_end(chan: Chan[End]) -> None:
    await chan.end()
    await chan.recv()  # error


async def opens_a_session(peer: afflux.Peer) -> None:
    async with peer.open(SUM) as chan:
        await chan.recv()  # error


def opens_a_session_and_blocks(peer: afflux.sync.Peer) -> None:
    with peer.open(SUM) as chan:
        choice = chan.send("1")  # error
        choice.send(2)  # error


afflux.Router().session(SUM)(takes_a_client)  # error


async def is_not_given_a_side() -> None:
    print(SUM.server, SHOP.client.name, SUM.missing)  # error
"""
