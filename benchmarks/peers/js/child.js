'use strict';
// One end of a measurement by rsocket-js 0.0.27: `node child.js server SETTINGS`, `node child.js client SETTINGS PORT`.
// The conversation is that of benchmarks/child.py: a JSON object a line, each answered by one line; the end of the input
// is the end. There is only one kind of settings, its own.

const fs = require('fs');
const net = require('net');
const readline = require('readline');
const {BufferEncoders, RSocketClient, RSocketServer} = require('rsocket-core');
const {Flowable, Single} = require('rsocket-flowable');
const {default: TcpClient} = require('rsocket-tcp-client');
const {default: TcpServer} = require('rsocket-tcp-server');

const HOST = '127.0.0.1';
const REQUEST_BYTES = 64;
const KEEPALIVE_MS = 20000;
const LIFETIME_MS = 90000;
const SLICE_BYTES = 0x10000;
const ROW_SIZES = [60, 270, 180, 90, 300, 210, 120, 330, 240, 150]; // of workloads.py

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
function items(count, size) {
  const rows = (size ? [size] : ROW_SIZES).map((one) => Buffer.alloc(one, 'x'));
  const slice = Math.max(1, Math.floor(SLICE_BYTES / (size || Math.max(...ROW_SIZES))));
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
        subscriber.onNext({data, metadata: undefined});
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
  requestStream: (payload) => items(...payload.data.toString().split(' ').map(Number)),
};

function serve() {
  const serverFactory = (accept) => {
    const listening = net.createServer(accept);
    return listening.on('listening', () => say({port: listening.address().port, ...used()}));
  };
  const transport = new TcpServer({host: HOST, port: 0, serverFactory}, BufferEncoders);
  new RSocketServer({getRequestHandler: () => responder, transport}).start();
  hear(() => say(used()));
}

// -- the client ---------------------------------------------------------------------------------------------

function request(socket, {n, concurrency}) {
  const payload = {data: Buffer.alloc(REQUEST_BYTES), metadata: undefined};
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
      socket.requestResponse(payload).subscribe({onComplete, onError: reject});
    };
    for (let i = Math.min(n, concurrency); i > 0; i--) ask();
  });
}

// Counts, and grants again what it has taken when that is half of the window.
function stream(socket, {items, size, credit}) {
  const mark = Math.max(1, Math.floor(credit / 2));
  return new Promise((resolve, reject) => {
    let [taken, counted, bytes] = [0, 0, 0];
    let subscription = null;
    socket.requestStream({data: Buffer.from(`${items} ${size}`), metadata: undefined}).subscribe({
      onSubscribe: (given) => {
        subscription = given;
        subscription.request(credit);
      },
      onNext: (item) => {
        counted++;
        bytes += item.data.length;
        if (++taken === mark) {
          taken = 0;
          subscription.request(mark);
        }
      },
      onComplete: () => resolve({items: counted, bytes}),
      onError: reject,
    });
  });
}

async function work(socket, command) {
  const before = used().cpu;
  const start = process.hrtime.bigint();
  const count = await (command.do === 'request' ? request : stream)(socket, command);
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  const after = used();
  say({...after, cpu: after.cpu - before, seconds, ...count});
}

function connect(port) {
  const client = new RSocketClient({
    setup: {
      dataMimeType: 'application/octet-stream',
      metadataMimeType: 'application/octet-stream',
      keepAlive: KEEPALIVE_MS,
      lifetime: LIFETIME_MS,
    },
    transport: new TcpClient({host: HOST, port}, BufferEncoders),
  });
  client.connect().subscribe({
    onComplete: (socket) => {
      say(used());
      hear((command) => work(socket, command).catch(fail));
    },
    onError: fail,
  });
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

const [role, , port] = process.argv.slice(2);
if (role === 'server') serve();
else if (role === 'client' && port) connect(Number(port));
else fail(new Error('usage: server SETTINGS | client SETTINGS PORT'));
