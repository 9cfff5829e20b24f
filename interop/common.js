'use strict';
// What both JavaScript peers share: the control protocol of interop/control.py (one JSON object a line, on stdin and
// stdout) and the responder's program of interop/program.py. Nothing here knows an RSocket implementation.

const crypto = require('crypto');
const readline = require('readline');

const SHOWN = 256; // larger values are told by length and digest

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

function fact(name, more) {
  say({fact: name, ...more});
}

// The same bytes as program.fill: blocks of 256, each with its number first.
function fill(size, seed) {
  const block = Buffer.alloc(256);
  for (let i = 0; i < 256; i++) block[i] = (i * 31 + seed) & 0xff;
  const count = Math.ceil(size / 256);
  const all = Buffer.alloc(count * 256);
  for (let k = 0; k < count; k++) {
    block.copy(all, k * 256);
    all.writeUInt32BE(k, k * 256);
  }
  return all.subarray(0, size);
}

// A value in a control line: null, "h:<hex>", "f:<size>:<seed>" or, only when told, "s:<size>:<digest>".
function read(value) {
  if (value == null) return undefined;
  const [kind, first, second] = value.split(':');
  return kind === 'h' ? Buffer.from(first, 'hex') : fill(Number(first), Number(second));
}

function digest(data) {
  return crypto.createHash('sha256').update(data).digest('hex').slice(0, 16);
}

function shown(data) {
  if (data == null) return null;
  return data.length <= SHOWN ? 'h:' + data.toString('hex') : `s:${data.length}:${digest(data)}`;
}

function told(payload) {
  return {data: shown(payload.data || Buffer.alloc(0)), metadata: shown(payload.metadata)};
}

function payload(command) {
  return {data: read(command.data), metadata: read(command.metadata)};
}

function words(data) {
  const text = Buffer.from(data || '').subarray(0, 200).toString('latin1');
  return text.startsWith('!') ? text.slice(1).split(' ') : ['echo'];
}

// What a request is answered with: {data, metadata}, {code, message}, {never: tag} or {slow: ms, data}.
function answer(request, route) {
  const [word, ...rest] = words(request.data);
  switch (word) {
    case 'digest': {
      const {data, metadata} = request;
      const about = metadata ? `${metadata.length} ${digest(metadata)}` : '-';
      return {data: Buffer.from(`${data.length} ${digest(data)} ${about}`)};
    }
    case 'size':
      return {data: fill(Number(rest[0]), 1), metadata: Number(rest[1]) ? fill(Number(rest[1]), 2) : undefined};
    case 'fail':
      return {code: 0x201, message: rest.join(' ')};
    case 'code':
      return {code: parseInt(rest[0], 16), message: rest.slice(1).join(' ')};
    case 'never':
      return {never: rest[0]};
    case 'slow':
      return {slow: Number(rest[0]), data: Buffer.from('slow')};
    case 'route':
      return {data: Buffer.from(route(request.metadata))};
    default:
      return {data: request.data, metadata: request.metadata};
  }
}

// What a stream consists of: {next(i)} gives item i, `count` of them, then `error` or completion.
function stream(request) {
  const [word, ...rest] = words(request.data);
  const number = (i) => ({data: Buffer.from(String(i))});
  switch (word) {
    case 'count':
      return {count: Number(rest[0]), next: (i) => ({data: Buffer.from(String(i).padEnd(Number(rest[1]), '.'))})};
    case 'meta':
      return {count: Number(rest[0]), next: (i) => ({data: Buffer.from(String(i)), metadata: Buffer.from(`m${i}`)})};
    case 'size': {
      const [size, meta, count] = rest.map(Number);
      return {count, next: (i) => ({data: fill(size, i), metadata: meta ? fill(meta, i + 1) : undefined})};
    }
    case 'never':
      return {count: 0, next: number, tag: rest[0], silent: true};
    case 'endless':
      return {count: Infinity, next: number, tag: rest[0]};
    case 'fail':
      return {count: Number(rest[0]), next: number, error: {code: 0x201, message: rest.slice(1).join(' ')}};
    case 'code':
      return {count: Number(rest[0]), next: number, error: {code: parseInt(rest[1], 16), message: rest.slice(2).join(' ')}};
    case 'empty':
      return {count: 0, next: number};
    default:
      return {count: 1, next: () => request};
  }
}

// Sends a plan's items as they are asked for. `to` has next(payload), complete() and error({code, message}).
class Producer {
  constructor(plan, to) {
    Object.assign(this, {plan, to, wanted: 0, sent: 0, over: false, busy: false});
    if (plan.silent) fact('never', {tag: plan.tag});
  }

  request(n) {
    this.wanted += n;
    if (!this.busy) {
      this.busy = true;
      setImmediate(() => this.run());
    }
  }

  run() {
    this.busy = false;
    const {plan, to} = this;
    for (let burst = 0; !this.over && this.sent < plan.count && this.wanted > 0; burst++) {
      if (burst === 256) return this.request(0);
      this.wanted--;
      to.next(plan.next(this.sent++));
    }
    if (!this.over && this.sent >= plan.count && !plan.silent) {
      this.over = true;
      if (plan.error) to.error(plan.error);
      else to.complete();
    }
  }

  cancel() {
    if (!this.over && this.plan.tag) fact('canceled', {tag: this.plan.tag});
    this.over = true;
  }
}

// The responder's half of a channel. `to` has next, complete and error as above, more(n) and cancel().
class Channel {
  constructor(first, to) {
    const [mode, ...rest] = words(first.data);
    Object.assign(this, {mode, rest, to, wanted: 0, queue: [], ended: false, over: false});
    Object.assign(this, {count: 0, bytes: 0, hash: crypto.createHash('sha256')});
    if (mode === 'half') {
      this.queue.push({data: Buffer.from('half')});
      this.finish();
    }
    if (mode === 'never') fact('never', {tag: rest[0]});
    else to.more(mode === 'one' ? 1 : mode === 'echo' ? 8 : 64);
    this.item(first);
  }

  item(payload) {
    this.count++;
    const data = payload.data || Buffer.alloc(0);
    this.bytes += data.length;
    this.hash.update(data);
    const limit = Number(this.rest[0]);
    switch (this.mode) {
      case 'echo':
      case 'one':
        this.queue.push(payload);
        return this.flush();
      case 'take':
        if (this.count !== limit) return undefined;
        this.to.cancel();
        this.queue.push({data: Buffer.from(`took ${limit}`)});
        return this.finish();
      case 'fail':
        if (this.count === limit) {
          this.over = true;
          this.to.error({code: 0x201, message: this.rest.slice(1).join(' ')});
        }
        return undefined;
      case 'never':
        return undefined;
      default:
        if (this.count > 1) this.to.more(1);
        return undefined;
    }
  }

  end() {
    if (this.mode === 'half' || this.mode === 'never') return fact('ended', {tag: this.mode, count: this.count});
    if (this.mode === 'sum') {
      const about = `${this.count} ${this.bytes} ${this.hash.digest('hex').slice(0, 16)}`;
      this.queue.push({data: Buffer.from(about)});
    }
    return this.finish();
  }

  finish() {
    this.ended = true;
    this.flush();
  }

  request(n) {
    this.wanted += n;
    this.flush();
  }

  flush() {
    while (!this.over && this.wanted > 0 && this.queue.length) {
      this.wanted--;
      this.to.next(this.queue.shift());
      if ((this.mode === 'echo' || this.mode === 'one') && !this.ended) this.to.more(1);
    }
    if (!this.over && this.ended && !this.queue.length) {
      this.over = true;
      this.to.complete();
    }
  }

  cancel() {
    if (!this.over && this.mode === 'never') fact('canceled', {tag: this.rest[0]});
    this.over = true;
  }

  failed(error) {
    this.over = true;
    fact('failed', {message: error.message, code: codeOf(error)});
  }
}

// Many echoes asked for in one go, and what became of them. `ask(payload, came, failed)` asks for one.
function burst({count, size}, reply, ask) {
  const told = {answered: 0, wrong: 0, failed: {}};
  let left = count;
  const over = () => --left || reply({burst: told});
  for (let i = 0; i < count; i++) {
    const data = Buffer.from(String(i).padEnd(size, '.'));
    const came = (item) => {
      told[data.equals(item.data || Buffer.alloc(0)) ? 'answered' : 'wrong']++;
      over();
    };
    const failed = (error) => {
      const text = failure(error).message;
      told.failed[text] = (told.failed[text] || 0) + 1;
      over();
    };
    ask({data}, came, failed);
  }
}

function codeOf(error) {
  return error.code === undefined ? (error.source ? error.source.code : null) : error.code;
}

function failure(error) {
  const text = error.source ? error.source.message : error.message;
  return {code: typeof codeOf(error) === 'number' ? codeOf(error) : null, message: String(text)};
}

// Reads commands for ever; `verbs[name](command, reply)` does each.
function listen(verbs) {
  process.on('uncaughtException', (error) => fact('crash', {message: String(error && error.stack)}));
  process.on('unhandledRejection', (error) => fact('crash', {message: String(error && error.stack)}));
  const lines = readline.createInterface({input: process.stdin, terminal: false});
  lines.on('close', () => process.exit(0));
  lines.on('line', async (line) => {
    const command = JSON.parse(line);
    try {
      await verbs[command.do](command, (more) => say({id: command.id, ...more}));
    } catch (error) {
      say({id: command.id, error: failure(error)});
    }
  });
  say({fact: 'started'});
}

module.exports = {Channel, Producer, answer, burst, fact, failure, fill, listen, payload, read, say, stream, told};
