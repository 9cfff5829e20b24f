'use strict';
// rsocket-js 0.0.27 as a peer: its own client and server, with its own transports.

const net = require('net');
const WebSocket = require('ws');
const core = require('rsocket-core');
const {Flowable, Single} = require('rsocket-flowable');
const {default: TcpClient} = require('rsocket-tcp-client');
const {default: TcpServer} = require('rsocket-tcp-server');
const {default: WsClient} = require('rsocket-websocket-client');
const {default: WsServer} = require('rsocket-websocket-server');
const common = require('../common');

const {BufferEncoders, RSocketClient, RSocketResumableTransport, RSocketServer} = core;
const MANY = Number.MAX_SAFE_INTEGER;

let socket = null; // the client's, or at a server that of the last connection
let client = null;
let stopServer = () => {};
const flows = new Map();

// -- answering ----------------------------------------------------------------------------------------------

function outgoing({data, metadata}) {
  return {data: data === undefined ? null : data, metadata: metadata === null ? undefined : metadata};
}

function errorOf({code, message}) {
  const error = new Error(message);
  error.source = {code, message}; // it sends APPLICATION_ERROR whatever stands here
  return error;
}

function routeOf(metadata) {
  const found = [];
  for (const entry of new core.CompositeMetadata(metadata)) {
    const routing = entry.mimeType === core.MESSAGE_RSOCKET_ROUTING.string;
    found.push(routing ? core.decodeRoutes(entry.content).next().value : `${entry.mimeType}=${entry.content.length}`);
  }
  return found.join(' ');
}

function produced(plan) {
  return new Flowable((subscriber) => {
    const producer = new common.Producer(plan, {
      next: (item) => subscriber.onNext(outgoing(item)),
      complete: () => subscriber.onComplete(),
      error: (error) => subscriber.onError(errorOf(error)),
    });
    subscriber.onSubscribe({request: (n) => producer.request(n), cancel: () => producer.cancel()});
  }, MANY);
}

function channel(payloads) {
  return new Flowable((subscriber) => {
    let logic = null;
    let inbound = null;
    let early = 0;
    const to = {
      next: (item) => subscriber.onNext(outgoing(item)),
      complete: () => subscriber.onComplete(),
      error: (error) => subscriber.onError(errorOf(error)),
      more: (n) => inbound.request(n),
      cancel: () => inbound.cancel(),
    };
    subscriber.onSubscribe({
      request: (n) => (logic ? logic.request(n) : (early += n)),
      cancel: () => logic && logic.cancel(),
    });
    payloads.subscribe({
      onSubscribe: (subscription) => {
        inbound = subscription;
        setImmediate(() => subscription.request(1));
      },
      onNext: (item) => {
        if (logic) return logic.item(item);
        logic = new common.Channel(item, to);
        return logic.request(early);
      },
      onComplete: () => logic.end(),
      onError: (error) => logic && logic.failed(error),
    });
  }, MANY);
}

const responder = {
  fireAndForget: (payload) => common.fact('fired', common.told(payload)),
  metadataPush: (payload) => {
    common.fact('pushed', common.told(payload));
    return Single.of(payload);
  },
  requestResponse: (payload) => {
    const plan = common.answer(payload, routeOf);
    return new Single((subscriber) => {
      let timer = null;
      subscriber.onSubscribe(() => {
        clearTimeout(timer);
        if (plan.never) common.fact('canceled', {tag: plan.never});
      });
      if (plan.never) common.fact('never', {tag: plan.never});
      else if (plan.slow) timer = setTimeout(() => subscriber.onComplete(outgoing(plan)), plan.slow);
      else if (plan.code) subscriber.onError(errorOf(plan));
      else subscriber.onComplete(outgoing(plan));
    });
  },
  requestStream: (payload) => produced(common.stream(payload)),
  requestChannel: channel,
};

function leases({ttl, n}) {
  const lease = new core.Leases();
  lease.receiver((granted) =>
    granted.subscribe({
      onSubscribe: (subscription) => subscription.request(MANY),
      onNext: (lease) => common.fact('leased', {ttl: lease.timeToLiveMillis, n: lease.allowedRequests}),
    })
  );
  if (n) {
    // Not at once: what it is given while it is made goes out before SETUP.
    lease.sender(() => new Flowable((subscriber) => {
      const request = () => setImmediate(() => subscriber.onNext(new core.Lease(ttl, n)));
      subscriber.onSubscribe({request, cancel: () => {}});
    }));
  }
  return lease;
}

// -- connecting and serving ---------------------------------------------------------------------------------

function watch(machine, name) {
  machine.connectionStatus().subscribe({
    onSubscribe: (subscription) => subscription.request(MANY),
    onNext: (status) => {
      if (status.kind === 'CLOSED' || status.kind === 'ERROR') {
        common.fact(name, {message: status.error ? status.error.message : ''});
      }
    },
  });
}

function transportOf(command) {
  const url = new URL(command.uri);
  const make = () =>
    url.protocol === 'tcp:'
      ? new TcpClient({host: url.hostname, port: Number(url.port)}, BufferEncoders)
      : new WsClient({url: command.uri, wsCreator: (uri) => new WebSocket(uri, command.bare ? [] : 'rsocket')}, BufferEncoders);
  if (!command.resume) return make();
  const options = {bufferSize: 1 << 20, resumeToken: Buffer.from(command.resume), sessionDurationSeconds: 30};
  const transport = new RSocketResumableTransport(make, options, BufferEncoders);
  transport.connectionStatus().subscribe({
    onSubscribe: (subscription) => subscription.request(MANY),
    onNext: (status) => status.kind === 'NOT_CONNECTED' && client && setImmediate(() => transport.connect()),
  });
  return transport;
}

function connect(command, reply) {
  const setup = {data: common.read(command.setup_data) || null, metadata: common.read(command.setup_metadata)};
  const made = new RSocketClient({
    setup: {
      dataMimeType: command.data_mime,
      metadataMimeType: command.metadata_mime,
      keepAlive: command.keepalive,
      lifetime: command.lifetime,
      payload: setup,
    },
    responder,
    transport: transportOf(command),
    leases: command.lease ? () => leases(command.lease) : undefined,
    errorHandler: (error) => common.fact('refused', common.failure(error)),
  });
  made.connect().subscribe({
    onComplete: (connected) => {
      client = made;
      socket = connected;
      watch(socket, 'closed');
      reply({ok: {}});
    },
    onError: (error) => reply({error: common.failure(error)}),
  });
}

function serve(command, reply) {
  const config = {
    getRequestHandler: (machine, payload) => {
      common.fact('setup', common.told(payload));
      if (command.reject) throw new Error('no entry');
      socket = machine;
      watch(machine, 'gone');
      return responder;
    },
    leases: command.lease ? () => leases(command.lease) : undefined,
  };
  let listening = null;
  const told = (scheme) => () => reply({ready: `${scheme}://127.0.0.1:${listening.address().port}`});
  const sockets = new Set();
  if (command.transport === 'tcp') {
    const serverFactory = (accept) => {
      listening = net.createServer((connection) => {
        sockets.add(connection);
        accept(connection);
      });
      return listening.on('listening', told('tcp'));
    };
    config.transport = new TcpServer({host: '127.0.0.1', port: 0, serverFactory}, BufferEncoders);
  } else {
    const factory = (options) => {
      listening = new WebSocket.Server(command.bare ? {...options, handleProtocols: () => false} : options);
      return listening.on('listening', told('ws')).on('connection', (connection) => sockets.add(connection));
    };
    config.transport = new WsServer({host: '127.0.0.1', port: 0}, BufferEncoders, factory);
  }
  new RSocketServer(config).start();
  stopServer = () => {
    listening.close();
    sockets.forEach((one) => (one.destroy || one.terminate).call(one));
  };
}

// -- asking -------------------------------------------------------------------------------------------------

function composite(route) {
  return core.encodeCompositeMetadata([
    [core.MESSAGE_RSOCKET_ROUTING, core.encodeRoute(route)],
    ['text/x-interop', Buffer.from('extra')],
  ]);
}

function asked(command) {
  const {data, metadata} = common.payload(command);
  return outgoing({data, metadata: command.route ? composite(command.route) : metadata});
}

function follow(command, reply, flowable) {
  const flow = {wanted: command.n, subscription: null};
  flows.set(command.id, flow);
  flowable.subscribe({
    onSubscribe: (subscription) => {
      flow.subscription = subscription;
      if (flow.wanted) subscription.request(flow.wanted);
    },
    onNext: (item) => reply({next: common.told(item)}),
    onComplete: () => reply({complete: true}),
    onError: (error) => reply({error: common.failure(error)}),
  });
}

function source(command, reply) {
  const items = command.items;
  return new Flowable((subscriber) => {
    const producer = new common.Producer(
      {
        count: command.endless ? Infinity : items.length,
        next: (i) => common.payload(i < items.length ? items[i] : {data: 'h:' + Buffer.from(String(i)).toString('hex')}),
        error: command.fail ? {code: 0x201, message: command.fail} : undefined,
      },
      {
        next: (item) => subscriber.onNext(outgoing(item)),
        complete: () => command.open || subscriber.onComplete(),
        error: (error) => subscriber.onError(errorOf(error)),
      }
    );
    subscriber.onSubscribe({
      request: (n) => producer.request(n),
      cancel: () => {
        producer.cancel();
        reply({stopped: true});
      },
    });
  }, MANY);
}

common.listen({
  connect,
  serve,
  request: (command, reply) => {
    socket.requestResponse(asked(command)).subscribe({
      onComplete: (payload) => reply({next: common.told(payload), complete: true}),
      onError: (error) => reply({error: common.failure(error)}),
      onSubscribe: (cancel) => flows.set(command.id, {subscription: {cancel}}),
    });
  },
  burst: (command, reply) =>
    common.burst(command, reply, (payload, came, failed) =>
      socket.requestResponse(outgoing(payload)).subscribe({onComplete: came, onError: failed, onSubscribe: () => {}})
    ),
  fire: (command, reply) => {
    socket.fireAndForget(asked(command));
    reply({ok: {}});
  },
  push: (command, reply) => {
    socket.metadataPush({metadata: common.read(command.metadata)}).subscribe({onComplete: () => reply({ok: {}})});
  },
  stream: (command, reply) => follow(command, reply, socket.requestStream(asked(command))),
  channel: (command, reply) => follow(command, reply, socket.requestChannel(source(command, reply))),
  more: (command) => flows.get(command.of).subscription.request(command.n),
  cancel: (command) => flows.get(command.of).subscription.cancel(),
  close: (command, reply) => {
    if (client) client.close();
    client = null;
    stopServer();
    reply({ok: {}});
  },
  hangup: (command, reply) => {
    socket.close();
    reply({ok: {}});
  },
});
