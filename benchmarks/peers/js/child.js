'use strict';
// One end of a measurement by rsocket-js 0.0.27: `node child.js server SETTINGS`, `node child.js client SETTINGS PORT`.
// The conversation is that of benchmarks/child.py: a JSON object a line, each answered by one line; the end of the input
// is the end. Of the settings only "routed" differs: the server has a table of routes.

const fs = require('fs');
const net = require('net');
const readline = require('readline');
const {
  APPLICATION_OCTET_STREAM,
  BufferEncoders,
  FLAGS,
  MESSAGE_RSOCKET_COMPOSITE_METADATA,
  MESSAGE_RSOCKET_ROUTING,
  RSocketClient,
  RSocketServer,
  decodeCompositeMetadata,
  decodeRoutes,
  encodeCompositeMetadata,
  encodeRoute,
} = require('rsocket-core');
const {Flowable, Single} = require('rsocket-flowable');
const {default: TcpClient, RSocketTcpConnection} = require('rsocket-tcp-client');
const {default: TcpServer} = require('rsocket-tcp-server');

const HOST = '127.0.0.1';
const REQUEST_BYTES = 64;
const KEEPALIVE_MS = 20000;
const LIFETIME_MS = 90000;
const SLICE_BYTES = 0x10000;

// Of workloads.py.
const VARIED = {
  0: [60, 270, 180, 90, 300, 210, 120, 330, 240, 150],
  1: [48, 76, 60, 68, 52, 80, 64, 72, 56, 64],
};
const METADATA_BYTES = 10;
const ROUTE = 'bench.echo.bytes';
const SHORT = 20;

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + '\n');
}

// CPU seconds of this process, user and system, and the most memory it had at once, in bytes.
function used() {
  const {user, system} = process.cpuUsage();
  return {cpu: (user + system) / 1e6, peak: peak()};
}

function peak() {
  try {
    return Number(/^VmHWM:\s+(\d+)/m.exec(fs.readFileSync('/proc/self/status', 'latin1'))[1]) * 1024;
  } catch {
    return process.resourceUsage().maxRSS * 1024;
  }
}

// -- the server ---------------------------------------------------------------------------------------------

// Items as they are asked for. It lets the event loop turn after each slice: done in one go, all items of a stream
// without a bound would be in memory before the first is sent, for the transport tells nobody that it is full (items of
// 64 KiB are a third slower then; small ones are the same).
function items(count, size, metadata) {
  const rows = (VARIED[size] || [size]).map((one) => Buffer.alloc(one, 'x'));
  const slice = Math.max(1, Math.floor(SLICE_BYTES / Math.max(...rows.map((one) => one.length))));
  return new Flowable((subscriber) => {
    let left = count;
    let wanted = 0;
    let busy = false;
    const some = () => {
      busy = false;
      for (let n = Math.min(slice, left, wanted); n > 0; n--) {
        const data = rows[(count - left) % rows.length];
        left--;
        wanted--;
        subscriber.onNext({data, metadata});
      }
      if (left === 0) subscriber.onComplete();
      else if (wanted > 0) later();
    };
    const later = () => {
      busy = true;
      setImmediate(some);
    };
    subscriber.onSubscribe({
      request: (n) => {
        wanted += n;
        if (!busy) some();
      },
      cancel: () => {
        left = wanted = 0;
      },
    });
  });
}

const responder = {
  requestResponse: (payload) => Single.of({data: payload.data, metadata: undefined}),
  requestStream: ({data, metadata}) => {
    if (metadata) sendMetadata();
    return items(...data.toString().split(' ').map(Number), metadata || undefined);
  },
};

// A server of 0.0.27 sends the metadata of a stream's items without the flag for it, so that nothing arrives.
const sendOne = RSocketTcpConnection.prototype.sendOne;

function sendMetadata() {
  RSocketTcpConnection.prototype.sendOne = function (frame) {
    if (frame.metadata) frame.flags |= FLAGS.METADATA;
    sendOne.call(this, frame);
  };
}

const routes = new Map([[ROUTE, responder.requestResponse]]);

// The first route in the composite metadata of a request.
function routeOf(metadata) {
  for (const entry of decodeCompositeMetadata(metadata)) {
    if (entry.mimeType === MESSAGE_RSOCKET_ROUTING.string) {
      for (const route of decodeRoutes(entry.content)) return route;
    }
  }
  return undefined;
}

const router = {
  requestResponse: (payload) => {
    const answer = routes.get(routeOf(payload.metadata));
    return answer ? answer(payload) : Single.error(new Error('no such route'));
  },
};

function serve(handler) {
  const serverFactory = (accept) => {
    const listening = net.createServer(accept);
    return listening.on('listening', () => say({port: listening.address().port, ...used()}));
  };
  const transport = new TcpServer({host: HOST, port: 0, serverFactory}, BufferEncoders);
  new RSocketServer({getRequestHandler: () => handler, transport}).start();
  hear(() => say(used()));
}

// -- the client ---------------------------------------------------------------------------------------------

function request(socket, {n, concurrency}, metadata = () => undefined) {
  const data = Buffer.alloc(REQUEST_BYTES);
  return new Promise((resolve, reject) => {
    let [left, counted, bytes] = [n, 0, 0];
    const onComplete = (answer) => {
      counted++;
      bytes += answer.data.length;
      if (left > 0) ask();
      else if (counted === n) resolve({items: counted, bytes});
    };
    const ask = () => {
      left--;
      socket.requestResponse({data, metadata: metadata()}).subscribe({onComplete, onError: reject});
    };
    for (let i = Math.min(n, concurrency); i > 0; i--) ask();
    if (n === 0) resolve({items: 0, bytes: 0});
  });
}

function routed(socket, command) {
  return request(socket, command, () => encodeCompositeMetadata([[MESSAGE_RSOCKET_ROUTING, encodeRoute(ROUTE)]]));
}

const crowd = [];

// Connections stay open; each sends its share of the requests.
async function many(socket, {n, concurrency, connections}) {
  while (crowd.length < connections) crowd.push(await connected());
  const share = (index) => Math.floor(n / connections) + (index < n % connections ? 1 : 0);
  const counts = await Promise.all(crowd.map((one, index) => request(one, {n: share(index), concurrency})));
  return counts.reduce((a, b) => ({items: a.items + b.items, bytes: a.bytes + b.bytes}));
}

// Counts, and grants again what it has taken when that is half of the window.
function stream(socket, {items, size, credit}, metadata) {
  const mark = Math.max(1, Math.floor(credit / 2));
  return new Promise((resolve, reject) => {
    let [taken, counted, bytes, marked] = [0, 0, 0, 0];
    let subscription = null;
    socket.requestStream({data: Buffer.from(`${items} ${size}`), metadata}).subscribe({
      onSubscribe: (given) => {
        subscription = given;
        subscription.request(credit);
      },
      onNext: (item) => {
        counted++;
        bytes += item.data.length;
        if (item.metadata) marked += item.metadata.length;
        if (++taken === mark) {
          taken = 0;
          subscription.request(mark);
        }
      },
      onComplete: () => {
        if (metadata && marked !== metadata.length * counted) reject(new Error(`${marked} bytes of metadata`));
        resolve({items: counted, bytes});
      },
      onError: reject,
    });
  });
}

function withMetadata(socket, command) {
  return stream(socket, command, Buffer.alloc(METADATA_BYTES, 'm'));
}

// Streams of a few rows; each counts as one item.
async function short(socket, {n, concurrency, credit}) {
  let [left, bytes] = [n, 0];
  const one = async () => {
    while (left > 0) {
      left--;
      const count = await stream(socket, {items: SHORT, size: 0, credit});
      bytes += count.bytes;
    }
  };
  await Promise.all(Array.from({length: concurrency}, one));
  return {items: n, bytes};
}

const KINDS = {request, routed, many, stream, metadata: withMetadata, short};

async function work(socket, command) {
  const before = used().cpu;
  const start = process.hrtime.bigint();
  const count = await KINDS[command.do](socket, command);
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const after = used();
  say({...after, cpu: after.cpu - before, seconds, ...count});
}

function connected() {
  const client = new RSocketClient({
    setup: {
      dataMimeType: APPLICATION_OCTET_STREAM.string,
      metadataMimeType: MESSAGE_RSOCKET_COMPOSITE_METADATA.string,
      keepAlive: KEEPALIVE_MS,
      lifetime: LIFETIME_MS,
    },
    transport: new TcpClient({host: HOST, port: Number(port)}, BufferEncoders),
  });
  return new Promise((onComplete, onError) => client.connect().subscribe({onComplete, onError}));
}

async function connect() {
  const socket = await connected();
  say(used());
  hear((command) => work(socket, command).catch(fail));
}

function fail(error) {
  process.stderr.write(`${error.name}: ${error.message}\n`);
  process.exit(1);
}

function hear(act) {
  const lines = readline.createInterface({input: process.stdin, terminal: false});
  lines.on('line', (line) => act(JSON.parse(line)));
  lines.on('close', () => process.exit(0));
}

const [role, settings, port] = process.argv.slice(2);
if (role === 'server') serve(settings === 'routed' ? router : responder);
else if (role === 'client' && port) connect().catch(fail);
else fail(new Error('usage: server SETTINGS | client SETTINGS PORT'));
