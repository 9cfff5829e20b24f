"""A minimal server and client with one request."""

import asyncio

import afflux


class Echo:
    """Answer each request with its payload."""

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
