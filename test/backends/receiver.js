// A server of other people's code: connect-node answers as Pyroscope and Parca do, busboy takes
// Datadog's forms apart. It only keeps what they hand over; profile_rules.py judges it.
//
//   node receiver.js FOLDER ADDRESS [CERTIFICATE KEY]
//
// ADDRESS is a port of 127.0.0.1 (0: any) or a unix socket's path. FOLDER/services.bin are the
// services' descriptors. FOLDER/address gets the port once it listens. Each profile that was taken
// is a file of FOLDER and then a line of FOLDER/taken, JSON. FOLDER/answers, where it is there,
// holds the first requests' answers, one a line: CODE [Retry-After], CODE a number for Datadog, as
// connect names it for the others; "date+N" is a date N seconds on. Each request that is answered
// so is a line of FOLDER/refused. FOLDER/hold, where it is there, holds milliseconds: a form of Datadog's
// that has come whole, which is then a line of FOLDER/come, is kept so much later, and answered as much
// later again: time to be killed in. SIGTERM ends it when what is under way has been answered.
"use strict";
const fs = require("node:fs");
const http = require("node:http");
const https = require("node:https");
const path = require("node:path");
const { createFileRegistry, fromBinary } = require("@bufbuild/protobuf");
const { FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");
const { Code, ConnectError } = require("@connectrpc/connect");
const { connectNodeAdapter } = require("@connectrpc/connect-node");
const busboy = require("busboy");

const [folder, address, certificate, key] = process.argv.slice(2);
const inFolder = (name) => path.join(folder, name);
const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, fs.readFileSync(inFolder("services.bin"))));
let kept = 0;

const answers = fs.existsSync(inFolder("answers"))
  ? fs.readFileSync(inFolder("answers"), "utf8").split("\n").filter(Boolean) : [];

const hold = fs.existsSync(inFolder("hold")) ? Number(fs.readFileSync(inFolder("hold"), "utf8")) : 0;

function addLine(file, record) {
  fs.appendFileSync(inFolder(file), JSON.stringify({ at: Date.now() / 1000, ...record }) + "\n");
}

function keep(record, data) {
  const file = `${process.pid}.${kept++}`;
  fs.writeFileSync(inFolder(file), data);
  addLine("taken", { ...record, file });
}

// The next answer that is no success: its code and headers; undefined: there is none.
function nextRefusal(kind) {
  const line = answers.shift();
  if (!line)
    return undefined;
  const [code, after] = line.split(" ");
  const date = after && after.match(/^date\+(\d+)$/);
  const value = date ? new Date(Date.now() + 1000 * date[1]).toUTCString() : after;
  addLine("refused", { kind, code, after: value });
  return { code, headers: value ? { "Retry-After": value } : {} };
}

function refuseByConnect(kind) {
  const refusal = nextRefusal(kind);
  if (!refusal)
    return;
  const name = refusal.code.replace(/(^|_)([a-z])/g, (_, __, letter) => letter.toUpperCase());
  throw new ConnectError("because of the test", Code[name], refusal.headers);
}

function headersOf(context) {
  return Object.fromEntries(context.requestHeader.entries());
}

function oneSeries(kind, request, labelsOf, context) {
  refuseByConnect(kind);
  for (const series of request.series)
    for (const sample of series.samples)
      keep({
        kind,
        together: request.series.length * series.samples.length,
        labels: labelsOf(series).map((label) => [label.name, label.value]),
        id: sample.ID,
        normalized: request.normalized,
        headers: headersOf(context),
        protocol: context.protocolName,
      }, sample.rawProfile);
  return {};
}

function routes(router) {
  router.service(registry.getService("push.v1.PusherService"), {
    push: (request, context) =>
      oneSeries("pyroscope", request, (series) => series.labels, context),
  });
  router.service(registry.getService("parca.profilestore.v1alpha1.ProfileStoreService"), {
    writeRaw: (request, context) =>
      oneSeries("parca", request, (series) => series.labels.labels, context),
  });
}

// Parts in memory, by name, as busboy finds them; then Datadog's agent's answer.
function takeForm(request, response) {
  const refusal = nextRefusal("datadog");
  if (refusal) {
    request.resume().on("end", () => response.writeHead(Number(refusal.code), refusal.headers).end());
    return;
  }
  const parts = [];
  const form = busboy({ headers: request.headers });
  form.on("field", (name) => parts.push({ name }));
  form.on("file", (name, stream, about) => {
    const chunks = [];
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("end", () => parts.push({ name, ...about, data: Buffer.concat(chunks) }));
  });
  form.on("error", (error) => {
    addLine("taken", { kind: "datadog", error: String(error) });
    response.writeHead(400).end();
  });
  form.on("close", () => {
    const names = parts.map(({ name, filename, mimeType }) => [name, filename, mimeType]);
    const event = parts.find((part) => part.name === "event");
    const profile = parts.find((part) => part.name !== "event");
    addLine("come", {});
    setTimeout(() => {
      keep({
        kind: "datadog",
        parts: names,
        event: event && event.data ? event.data.toString("utf8") : "",
        headers: request.headers,
        url: request.url,
      }, profile && profile.data ? profile.data : "");
      setTimeout(() => response.writeHead(200).end(), hold);
    }, hold);
  });
  request.pipe(form);
}

const connect = connectNodeAdapter({ routes, fallback: (request, response) => {
  if (request.url === "/profiling/v1/input" || request.url === "/api/v2/profile")
    return takeForm(request, response);
  addLine("taken", { kind: "unknown", error: `${request.method} ${request.url}` });
  return response.writeHead(404).end();
} });
const server = certificate
  ? https.createServer({ cert: fs.readFileSync(certificate), key: fs.readFileSync(key) }, connect)
  : http.createServer(connect);
const isSocket = address.startsWith("/");
server.listen(isSocket ? address : { host: "127.0.0.1", port: Number(address) }, () => {
  if (isSocket)
    fs.chmodSync(address, 0o666);
  fs.writeFileSync(inFolder("address.new"), isSocket ? address : String(server.address().port));
  fs.renameSync(inFolder("address.new"), inFolder("address"));
});
process.on("SIGTERM", () => server.close(() => process.exit(0)));
