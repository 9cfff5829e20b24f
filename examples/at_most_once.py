"""At-most-once calls: a failed call reports whether it may have been processed (Jmux)."""

import asyncio

import afflux


class Bank:
    """Executes every order that it receives, even a repeated one."""

    async def request(self, payload: afflux.Payload) -> str:
        if payload.text == "pay nobody":
            raise afflux.ApplicationError(message="unknown recipient")
        return f"done: {payload.text}"


async def order(uri: str, text: str) -> None:
    try:
        async with afflux.connect(uri) as peer:
            print((await peer.request(text)).text)
    except afflux.Error as error:
        print(f"{text}: {'may have been processed' if error.may_have_been_processed else 'safe to retry'}")


async def main() -> None:
    async with afflux.serve("jmux+tcp://127.0.0.1:0", Bank()) as server:
        await order(server.uri, "pay 10")
        await order(server.uri, "pay nobody")
    await order(server.uri, "pay 20")  # the server is closed


asyncio.run(main())
