"""Leases: a server limits the number of requests, and its client obeys."""

import asyncio

import afflux


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


async def main() -> None:
    async with (
        afflux.serve("tcp://127.0.0.1:0", Echo(), lease=afflux.FixedLease(2, ttl=60)) as server,
        afflux.connect(server.uri, lease=True) as hasty,
    ):
        for i in range(3):
            try:
                print((await hasty.request(f"request {i}")).text)
            except afflux.LeaseExpired as error:
                print(f"request {i}: {error}")
    async with (
        afflux.serve("tcp://127.0.0.1:0", Echo(), lease=afflux.FixedLease(2, ttl=0.2)) as server,
        afflux.connect(server.uri, lease=True, lease_wait=30.0) as patient,
    ):
        replies = await asyncio.gather(*(patient.request(str(i)) for i in range(5)))
        print("waiting for leases: " + " ".join(reply.text for reply in replies))


asyncio.run(main())
