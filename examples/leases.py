"""Leases: a server says how many requests it can take, and its client keeps to it."""

import asyncio

import afflux


class Echo:
    async def request(self, payload: afflux.Payload) -> afflux.Payload:
        return payload


async def main() -> None:
    two_a_moment = afflux.FixedLease(2, 0.2)
    async with afflux.serve("tcp://127.0.0.1:0", Echo(), lease=two_a_moment) as server:
        async with afflux.connect(server.uri, lease=True) as hasty:
            for i in range(3):
                try:
                    print((await hasty.request(f"request {i}")).text)
                except afflux.LeaseExpired as error:
                    print(f"request {i}: {error}")
        async with afflux.connect(server.uri, lease=True, lease_wait=5.0) as patient:
            replies = await asyncio.gather(*(patient.request(str(i)) for i in range(5)))
            print("with patience: " + " ".join(reply.text for reply in replies))


asyncio.run(main())
