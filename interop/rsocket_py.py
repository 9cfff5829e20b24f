"""Run rsocket 0.4.20 from PyPI as a peer: a process controlled by control.py (``python -m interop.rsocket_py``).

TCP is its own transport; WebSocket is its transport for the library ``websockets``, at both ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

from interop.program import Plan, answer, plan, read
from interop.rsocket_py_flow import Echo, Receiver, Reply, Source, error_of, fact, failure, say, told


def route_of(metadata: bytes) -> str:
    """Read the route and the other entries with its own reader."""
    from rsocket.extensions.composite_metadata import CompositeMetadata
    from rsocket.extensions.routing import RoutingMetadata

    found = []
    for item in CompositeMetadata().parse(metadata).items:
        if isinstance(item, RoutingMetadata):
            found.append(item.tags[0].decode())
        else:
            found.append(f"{bytes(item.encoding).decode()}={len(item.content)}")
    return " ".join(found)


def handler_class(peer: Peer, reject: bool = False, name: str = "gone") -> type:
    """Its handler, which runs the program."""
    from rsocket.payload import Payload
    from rsocket.request_handler import BaseRequestHandler

    class Handler(BaseRequestHandler):  # type: ignore[misc]  # it has no types
        async def on_setup(self, data_encoding: bytes, metadata_encoding: bytes, payload: Any) -> None:
            mimes = {"data_mime": data_encoding.decode(), "metadata_mime": metadata_encoding.decode()}
            fact("setup", **told(payload), **mimes)
            if reject:
                raise RuntimeError("no entry")

        async def on_metadata_push(self, payload: Any) -> None:
            fact("pushed", **told(payload))

        async def request_fire_and_forget(self, payload: Any) -> None:
            fact("fired", **told(payload))

        async def request_response(self, payload: Any) -> Any:
            return asyncio.ensure_future(respond(payload))

        async def request_stream(self, payload: Any) -> Any:
            return Source(plan(bytes(payload.data), payload.metadata))

        async def request_channel(self, payload: Any) -> Any:
            echo = Echo(payload)
            return echo, echo

        async def on_error(self, error_code: Any, payload: Any) -> None:
            fact("refused", code=int(error_code), message=bytes(payload.data or b"").decode())

        async def on_close(self, rsocket: Any, exception: Exception | None = None) -> None:
            fact(name, message=str(exception or ""))

        async def on_keepalive_timeout(self, time_since_last_keepalive: Any, rsocket: Any) -> None:
            fact(name, message="keepalive timeout")

        async def on_connection_error(self, rsocket: Any, exception: Exception) -> None:
            fact(name, message=str(exception))

    async def respond(payload: Any) -> Any:
        made = answer(bytes(payload.data or b""), payload.metadata, route_of)
        if made.never is not None:
            fact("never", tag=made.never)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                fact("canceled", tag=made.never)
                raise
        await asyncio.sleep(made.slow)
        if made.error is not None:
            raise error_of(made.error)
        return Payload(made.data, made.metadata)

    return Handler


class Peer:
    """The orders."""

    def __init__(self) -> None:
        self._socket: Any = None
        self._server: Any = None
        self._client: Any = None
        self._flows: dict[int, Any] = {}
        self._extra: list[asyncio.Task[Any]] = []

    async def connect(self, command: dict[str, Any], reply: Reply) -> None:
        from rsocket.helpers import single_transport_provider
        from rsocket.payload import Payload
        from rsocket.rsocket_client import RSocketClient

        transport = await self._transport(command["uri"], _named(command))
        self._client = self._socket = RSocketClient(
            single_transport_provider(transport),
            handler_factory=handler_class(self, name="closed"),
            setup_payload=Payload(read(command.get("setup_data")), read(command.get("setup_metadata"))),
            data_encoding=command["data_mime"].encode(),
            metadata_encoding=command["metadata_mime"].encode(),
            keep_alive_period=timedelta(milliseconds=command["keepalive"]),
            max_lifetime_period=timedelta(milliseconds=command["lifetime"]),
            **_parts(command),
        )
        await self._client.connect()
        reply(ok={})

    async def _transport(self, uri: str, subprotocols: Any) -> Any:
        from rsocket.transports.tcp import TransportTCP
        from rsocket.transports.websockets_transport import WebsocketsTransport

        host, _, port = uri.partition("://")[2].partition("/")[0].rpartition(":")
        if uri.startswith("tcp:"):
            return TransportTCP(*await asyncio.open_connection(host, int(port)), read_buffer_size=0x4000)
        from websockets.asyncio.client import connect

        websocket = await connect(uri, subprotocols=subprotocols, compression=None, max_size=None)
        transport = WebsocketsTransport()
        self._extra.append(asyncio.ensure_future(transport.handler(websocket)))
        return transport

    async def serve(self, command: dict[str, Any], reply: Reply) -> None:
        from rsocket.rsocket_server import RSocketServer
        from rsocket.transports.tcp import TransportTCP
        from rsocket.transports.websockets_transport import WebsocketsTransport

        def welcome(transport: Any) -> None:
            handler = handler_class(self, reject=bool(command.get("reject")))
            self._socket = RSocketServer(transport, handler_factory=handler, **_parts(command))

        async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            welcome(TransportTCP(reader, writer, read_buffer_size=0x4000))

        async def websocket(connection: Any) -> None:
            transport = WebsocketsTransport()
            welcome(transport)
            await transport.handler(connection)

        if command["transport"] == "tcp":
            self._server = await asyncio.start_server(tcp, "127.0.0.1", 0)
        else:
            from websockets.asyncio.server import serve

            wanted = _named(command)
            self._server = await serve(websocket, "127.0.0.1", 0, subprotocols=wanted, compression=None, max_size=None)
        port = next(iter(self._server.sockets)).getsockname()[1]
        reply(ready=f"{command['transport']}://127.0.0.1:{port}")

    async def request(self, command: dict[str, Any], reply: Reply) -> None:
        future = self._flows[command["id"]] = self._socket.request_response(_asked(command))

        def done(future: Any) -> None:
            if future.cancelled():
                return
            if error := future.exception():
                reply(error=failure(error))
            else:
                reply(next=told(future.result()), complete=True)

        future.add_done_callback(done)

    async def burst(self, command: dict[str, Any], reply: Reply) -> None:
        from rsocket.payload import Payload

        sent = [b"%d" % i + bytes(command["size"]) for i in range(command["count"])]
        came = await asyncio.gather(
            *(self._socket.request_response(Payload(data)) for data in sent), return_exceptions=True
        )
        failed = Counter(str(one) for one in came if isinstance(one, BaseException))
        whole = [one for one in zip(sent, came, strict=True) if not isinstance(one[1], BaseException)]
        answered = sum(bytes(item.data) == data for data, item in whole)
        reply(burst={"answered": answered, "wrong": len(whole) - answered, "failed": failed})

    async def fire(self, command: dict[str, Any], reply: Reply) -> None:
        await self._socket.fire_and_forget(_asked(command))
        reply(ok={})

    async def push(self, command: dict[str, Any], reply: Reply) -> None:
        await self._socket.metadata_push(read(command["metadata"]))
        reply(ok={})

    async def stream(self, command: dict[str, Any], reply: Reply) -> None:
        receiver = self._flows[command["id"]] = Receiver(command["n"], reply)
        self._socket.request_stream(_asked(command)).initial_request_n(command["n"]).subscribe(receiver)

    async def channel(self, command: dict[str, Any], reply: Reply) -> None:
        items = [(read(item["data"]) or b"", read(item.get("metadata"))) for item in command["items"]]
        open = bool(command.get("open"))
        rest = Plan(iter(items[1:]), error=(0x201, command["fail"]) if command.get("fail") else None)
        if command.get("endless"):
            rest = plan(b"!endless x", None)
            rest.tag = None
        publisher = None
        if items[1:] or open or rest.error or command.get("endless"):
            publisher = Source(rest, open)
            publisher.stopped = lambda: reply(stopped=True)
        receiver = self._flows[command["id"]] = Receiver(command["n"], reply)
        first = _asked(command["items"][0] | {"route": command.get("route")})
        self._socket.request_channel(first, publisher).initial_request_n(command["n"]).subscribe(receiver)

    async def more(self, command: dict[str, Any], reply: Reply) -> None:
        self._flows[command["of"]].subscription.request(command["n"])

    async def cancel(self, command: dict[str, Any], reply: Reply) -> None:
        flow = self._flows[command["of"]]
        (flow if isinstance(flow, asyncio.Future) else flow.subscription).cancel()

    async def close(self, command: dict[str, Any], reply: Reply) -> None:
        if self._client is not None:
            await self._client.close()
        if self._server is not None:
            self._server.close()
        for task in self._extra:
            task.cancel()
        self._client = self._server = None
        reply(ok={})

    async def hangup(self, command: dict[str, Any], reply: Reply) -> None:
        await self._socket.close()
        reply(ok={})


def _named(command: dict[str, Any]) -> Any:
    """The WebSocket subprotocol that is offered or selected."""
    return None if command.get("bare") else ["rsocket"]


def _parts(command: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {"fragment_size_bytes": command.get("mtu")}
    if lease := command.get("lease"):
        from rsocket.lease import SingleLeasePublisher

        parts["honor_lease"] = True
        if lease["n"]:
            parts["lease_publisher"] = SingleLeasePublisher(lease["n"], timedelta(milliseconds=lease["ttl"]))
    return parts


def _asked(command: dict[str, Any]) -> Any:
    from rsocket.extensions.helpers import composite, metadata_item, route
    from rsocket.payload import Payload

    metadata = read(command.get("metadata"))
    if command.get("route"):
        metadata = composite(route(command["route"]), metadata_item(b"extra", b"text/x-interop"))
    return Payload(read(command.get("data")), metadata)


async def main() -> None:
    """Execute orders until the process ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    peer = Peer()
    say({"fact": "started"})
    running: set[asyncio.Task[None]] = set()
    async for line in reader:
        command = json.loads(line)
        task = loop.create_task(_one(peer, command))
        running.add(task)
        task.add_done_callback(running.discard)


async def _one(peer: Peer, command: dict[str, Any]) -> None:
    def reply(**more: Any) -> None:
        say({"id": command["id"], **more})

    try:
        await getattr(peer, command["do"])(command, reply)
    except Exception as error:
        reply(error=failure(error))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main())
    os._exit(0)
