// What the page asks its server. The key comes behind the mark of the address, and no other page has it.

const STORE = "gwi-play-key";
const PAGE = crypto.randomUUID();

function takenKey() {
  const given = location.hash.slice(1);
  if (/^[\w-]{20,}$/.test(given)) {
    sessionStorage.setItem(STORE, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(STORE) ?? "";
}

const key = takenKey();

/** An answer that is a sentence. */
export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

async function answered(response) {
  if (response.ok) return response;
  const node = await response.json().catch(() => ({}));
  throw new Refused(response.status, node.error ?? `The server answered ${response.status}.`);
}

async function sent(path, options) {
  const headers = { "x-gwi-play": key, "x-page": PAGE, ...options.headers };
  let response;
  try {
    response = await fetch(`/api/${path}`, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer; is `gwi play` still running?");
  }
  return answered(response);
}

// A refusal in words is an answer of the server's; others are faults.
async function read(response) {
  const node = await response.json();
  if (node.refused !== undefined) throw new Refused(response.status, node.refused);
  return node;
}

/** JSON from the server. */
export async function get(path) {
  return read(await sent(path, {}));
}

/** JSON to the server, and back. */
export async function post(path, node = {}, signal = undefined) {
  const headers = { "content-type": "application/json" };
  return read(await sent(path, { method: "POST", headers, body: JSON.stringify(node), signal }));
}

/** A file to the server. */
export async function upload(file) {
  const headers = { "content-type": "application/octet-stream", "x-file-name": encodeURIComponent(file.name.slice(-200)) };
  return read(await sent("tables", { method: "POST", headers, body: file }));
}

/** Forget something. */
export async function forget(path) {
  await sent(path, { method: "DELETE" });
}

/** A file of the server's. */
export async function blob(path) {
  return (await sent(path, {})).blob();
}
