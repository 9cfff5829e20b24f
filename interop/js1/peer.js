'use strict';
// rsocket-js 1.0.0-alpha.3 as a peer: its own client and server, with its own transports.

const net = require('net');
const WebSocket = require('ws');
const composite = require('rsocket-composite-metadata');
const {RSocketConnector, RSocketError, RSocketServer} = require('rsocket-core');
const {TcpClientTransport} = require('rsocket-tcp-client');
const {TcpServerTransport} = require('rsocket-tcp-server');
const {WebsocketClientTransport} = require('rsocket-websocket-client');
const {WebsocketServerTransport} = require('rsocket-websocket-server');
const common = require('../common');

let socket = null; // the client's, or at a server that of the last connection
let stopServer = () => {};
const flows = new Map();
const unused = {onExtension: () => {}};

// -- answering ----------------------------------------------------------------------------------------------

function outgoing({data, metadata}) {
  return {data: data === undefined ? null : data, metadata: metadata === null ? undefined : metadata};
}

function errorOf({code, message}) {
  return new RSocketError(code, message);
}

function routeOf(metadata) {
  const found = [];
  for (const entry of composite.decodeCompositeMetadata(metadata)) {
    const mime = entry.mimeType || entry.type;
    const routing = mime === composite.WellKnownMimeType.MESSAGE_RSOCKET_ROUTING.string;
    found.push(routing ? composite.decodeRoutes(entry.content).next().value : `${mime}=${entry.content.length}`);
  }
  return found.join(' ');
}

function sender(stream) {
  return {
    next: (item) => stream.onNext(outgoing(item), false),
    complete: () => stream.onComplete(),
    error: (error) => stream.onError(errorOf(error)),
  };
}

const responder = {
  fireAndForget: (payload) => {
    common.fact('fired', common.told(payload));
    return {cancel: () => {}};
  },
  metadataPush: (metadata) => common.fact('pushed', {metadata: String(metadata)}),
  requestResponse: (payload, stream) => {
    const plan = common.answer(payload, routeOf);
    let timer = null;
    if (plan.never) common.fact('never', {tag: plan.never});
    else if (plan.slow) timer = setTimeout(() => stream.onNext(outgoing(plan), true), plan.slow);
    else if (plan.code) stream.onError(errorOf(plan));
    else stream.onNext(outgoing(plan), true);
    const cancel = () => {
      clearTimeout(timer);
      if (plan.never) common.fact('canceled', {tag: plan.never});
    };
    return {cancel, ...unused};
  },
  requestStream: (payload, n, stream) => {
    const producer = new common.Producer(common.stream(payload), sender(stream));
    producer.request(n);
    return {request: (more) => producer.request(more), cancel: () => producer.cancel(), ...unused};
  },
  requestChannel: (payload, n, complete, stream) => {
    const to = {...sender(stream), more: (more) => stream.request(more), cancel: () => stream.cancel()};
    let logic = null;
    setImmediate(() => {
      logic = new common.Channel(payload, to);
      if (complete) logic.end();
      logic.request(n);
    });
    return {
      request: (more) => (logic ? logic.request(more) : (n += more)),
      cancel: () => logic && logic.cancel(),
      onNext: (item, last) => {
        logic.item(item);
        if (last) logic.end();
      },
      onComplete: () => logic.end(),
      onError: (error) => logic && logic.failed(error),
      ...unused,
    };
  },
};

// -- connecting and serving ---------------------------------------------------------------------------------

function transportOf(command) {
  const url = new URL(command.uri);
  return url.protocol === 'tcp:'
    ? new TcpClientTransport({connectionOptions: {host: url.hostname, port: Number(url.port)}})
    : new WebsocketClientTransport({
        url: command.uri,
        wsCreator: (to) => new WebSocket(to, command.bare ? [] : 'rsocket'),
      });
}

function parts(command) {
  return {
    fragmentation: command.mtu ? {maxOutboundFragmentSize: command.mtu} : undefined,
    lease: command.lease ? {} : undefined,
  };
}

async function connect(command, reply) {
  const connector = new RSocketConnector({
    setup: {
      dataMimeType: command.data_mime,
      metadataMimeType: command.metadata_mime,
      keepAlive: command.keepalive,
      lifetime: command.lifetime,
      payload: {data: common.read(command.setup_data), metadata: common.read(command.setup_metadata)},
    },
    transport: transportOf(command),
    responder,
    ...parts(command),
    resume: command.resume && {
      tokenGenerator: () => Buffer.from(command.resume),
      reconnectFunction: (attempt) => new Promise((done) => setTimeout(done, 50 * attempt)),
    },
  });
  socket = await connector.connect();
  socket.onClose((error) => {
    common.fact('closed', {message: error ? error.message : ''});
    if (error && typeof error.code === 'number') common.fact('refused', common.failure(error));
  });
  reply({ok: {}});
}

async function serve(command, reply) {
  const sockets = new Set();
  let listening = null;
  let transport;
  if (command.transport === 'tcp') {
    const socketCreator = (options) => {
      listening = new net.Server(options);
      return listening.on('connection', (one) => sockets.add(one));
    };
    transport = new TcpServerTransport({listenOptions: {host: '127.0.0.1', port: 0}, socketCreator});
  } else {
    const wsCreator = (options) => {
      listening = new WebSocket.Server(command.bare ? {...options, handleProtocols: () => false} : options);
      return listening.on('connection', (one) => sockets.add(one));
    };
    transport = new WebsocketServerTransport({host: '127.0.0.1', port: 0, wsCreator});
  }
  const accept = async (setup, peer) => {
    const mimes = {data_mime: setup.dataMimeType, metadata_mime: setup.metadataMimeType};
    common.fact('setup', {...common.told(setup), ...mimes});
    if (command.reject) throw new Error('no entry');
    socket = peer;
    peer.onClose((error) => common.fact('gone', {message: error ? error.message : ''}));
    return responder;
  };
  const resume = command.resume ? {sessionTimeout: 30000} : undefined;
  const server = new RSocketServer({
    transport,
    acceptor: {accept},
    resume,
    serverSideKeepAlive: true,
    ...parts(command),
  });
  await server.bind();
  stopServer = () => {
    listening.close();
    sockets.forEach((one) => (one.destroy || one.terminate).call(one));
  };
  reply({ready: `${command.transport}://127.0.0.1:${listening.address().port}`});
}

// -- asking -------------------------------------------------------------------------------------------------

function routed(route) {
  return composite.encodeCompositeMetadata([
    [composite.WellKnownMimeType.MESSAGE_RSOCKET_ROUTING, composite.encodeRoute(route)],
    ['text/x-interop', Buffer.from('extra')],
  ]);
}

function asked(command) {
  const {data, metadata} = common.payload(command);
  return outgoing({data, metadata: command.route ? routed(command.route) : metadata});
}

function receiver(reply) {
  return {
    onNext: (item, last) => {
      reply({next: common.told(item)});
      if (last) reply({complete: true});
    },
    onComplete: () => reply({complete: true}),
    onError: (error) => reply({error: common.failure(error)}),
    ...unused,
  };
}

function channel(command, reply) {
  const items = command.items;
  const rest = items.slice(1);
  const whole = rest.length === 0 && !command.open && !command.endless && !command.fail;
  let stream = null;
  const producer = new common.Producer(
    {
      count: command.endless ? Infinity : rest.length,
      next: (i) => common.payload(i < rest.length ? rest[i] : {data: 'h:' + Buffer.from(String(i)).toString('hex')}),
      error: command.fail ? {code: 0x201, message: command.fail} : undefined,
    },
    {
      next: (item) => stream.onNext(outgoing(item), false),
      complete: () => command.open || whole || stream.onComplete(),
      error: (error) => stream.onError(errorOf(error)),
    }
  );
  stream = socket.requestChannel(asked(items[0]), command.n, whole, {
    ...receiver(reply),
    request: (n) => producer.request(n),
    cancel: () => {
      producer.cancel();
      reply({stopped: true});
    },
  });
  if (!rest.length) producer.request(0);
  return stream;
}

common.listen({
  connect,
  serve,
  request: (command, reply) => {
    const flow = socket.requestResponse(asked(command), {
      onNext: (item) => reply({next: common.told(item), complete: true}),
      onComplete: () => reply({complete: true}),
      onError: (error) => reply({error: common.failure(error)}),
      ...unused,
    });
    flows.set(command.id, flow);
  },
  burst: (command, reply) =>
    common.burst(command, reply, (payload, came, failed) =>
      socket.requestResponse(outgoing(payload), {onNext: came, onComplete: () => {}, onError: failed, ...unused})
    ),
  fire: (command, reply) => {
    const done = {onComplete: () => reply({ok: {}}), onError: (error) => reply({error: common.failure(error)})};
    socket.fireAndForget(asked(command), done);
  },
  push: (command, reply) => {
    socket.metadataPush(common.read(command.metadata), {onComplete: () => reply({ok: {}}), onError: () => {}});
  },
  stream: (command, reply) => {
    flows.set(command.id, socket.requestStream(asked(command), command.n, receiver(reply)));
  },
  channel: (command, reply) => {
    flows.set(command.id, channel(command, reply));
  },
  more: (command) => flows.get(command.of).request(command.n),
  cancel: (command) => flows.get(command.of).cancel(),
  close: (command, reply) => {
    if (socket) socket.close();
    socket = null;
    stopServer();
    reply({ok: {}});
  },
  hangup: (command, reply) => {
    socket.close();
    reply({ok: {}});
  },
});
