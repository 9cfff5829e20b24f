'use strict';
// Drives Chromium for tests/peers/test_browser.py: each line of stdin is a command, each line of stdout its answer.

const {mkdtempSync, rmSync} = require('fs');
const {tmpdir} = require('os');
const {join} = require('path');
const readline = require('readline');
const puppeteer = require('puppeteer-core');

const FLAGS = '--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking';
const MORE = '--disable-component-update --disable-sync --ignore-certificate-errors';

async function main() {
  const userDataDir = mkdtempSync(join(tmpdir(), 'afflux-chromium-'));
  const args = [...FLAGS.split(' '), ...MORE.split(' ')];
  const browser = await puppeteer.launch({executablePath: process.argv[2], headless: true, userDataDir, args});
  const page = await browser.newPage();
  const commands = {
    open: (url) => page.goto(url).then(() => null),
    run: (code) => page.evaluate(code),
    until: (code) => page.waitForFunction(code, {timeout: 15000}).then(() => null),
  };
  for await (const line of readline.createInterface({input: process.stdin})) {
    const [name, argument] = JSON.parse(line);
    const answer = await commands[name](argument).then((ok) => ({ok}), (error) => ({error: String(error)}));
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  await browser.close();
  rmSync(userDataDir, {recursive: true, force: true});
}

main().catch((error) => {
  process.stdout.write(`${JSON.stringify({error: String(error)})}\n`);
  process.exit(1);
});
