"""Routes with variables, typed arguments and JSON data."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import afflux

router = afflux.Router()


@dataclass
class Order:
    symbol: str
    amount: int


@router.request("orders", codec="application/json")
async def place(order: Order) -> dict[str, object]:
    return {"placed": order.amount, "of": order.symbol}


@router.stream("prices.{symbol}.{count:int}", codec="application/json")
async def prices(payload: afflux.Payload, symbol: str, count: int) -> AsyncIterator[dict[str, object]]:
    for i in range(count):
        yield {"symbol": symbol, "price": 100 + i}


async def main() -> None:
    async with afflux.serve("tcp://127.0.0.1:0", router) as server, afflux.connect(server.uri) as peer:
        print((await peer.request(b'{"symbol": "EUR", "amount": 3}', route="orders")).text)
        async for price in peer.stream(route="prices.EUR.2"):
            print(price.text)
        try:
            await peer.request(b'{"symbol": "EUR"}', route="orders")
        except afflux.Invalid as error:
            print(f"refused: {error}")


asyncio.run(main())
