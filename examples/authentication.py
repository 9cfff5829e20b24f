"""Only clients with a valid token may connect, and the handler reads the user's name."""

import asyncio

import afflux


class Greeter:
    async def request(self, payload: afflux.Payload) -> str:
        return f"hello {afflux.auth.current_principal()}"


async def main() -> None:
    door = afflux.auth.at_setup(afflux.auth.verify_token({"s3cret-of-ann": "Ann"}))
    async with afflux.serve("tcp://127.0.0.1:0", Greeter(), on_setup=door) as server:
        async with afflux.connect(server.uri, setup=afflux.Bearer("s3cret-of-ann")) as peer:
            print((await peer.request()).text)
        async with afflux.connect(server.uri, setup=afflux.Bearer("a guess")) as peer:
            try:
                await peer.request()
            except afflux.SetupRefused as error:
                print(f"refused: {error}")


asyncio.run(main())
