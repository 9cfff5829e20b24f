"""Calls that are processed at most once, and what a failed one says (Jmux)."""

import asyncio

import afflux


class Bank:
    """It takes an order twice if it is sent twice."""

    async def request(self, payload: afflux.Payload) -> str:
        if payload.text == "pay nobody":
            raise afflux.ApplicationError(message="who is that?")
        return f"done: {payload.text}"


async def order(uri: str, text: str) -> None:
    try:
        async with afflux.connect(uri) as peer:
            print((await peer.request(text)).text)
    except afflux.Error as error:
        print(f"{text}: {'look whether it was done' if error.may_have_been_processed else 'safe to send again'}")


async def main() -> None:
    async with afflux.serve("jmux+tcp://127.0.0.1:0", Bank()) as server:
        await order(server.uri, "pay 10")
        await order(server.uri, "pay nobody")
    await order(server.uri, "pay 20")  # nobody is there any more


asyncio.run(main())
