"""A server, a client, and one request: the smallest thing that works."""

import asyncio

import afflux


class Echo:
    """Answers each request with what it was sent."""

    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


async def main() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Echo()) as server,
        afflux.connect(server.uri) as peer,
    ):
        reply = await peer.request(b"hello")
        print(reply.text)


asyncio.run(main())
