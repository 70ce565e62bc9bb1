// The control API for the pages.

/** Send a request to the sandbox. A browser's error for no response ("Failed to fetch") would not help people. */
export async function ask(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("The sandbox does not respond.");
  }
}

/** Call the control API and return its response. Throws an Error with the sandbox's message. */
export async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "Content-Type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const response = await ask(`/_sandbox/${path}`, options);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.message), { status: response.status });
  return answer;
}

/** Return the text at a path of the control API. */
export async function text(path) {
  const response = await ask(`/_sandbox/${path}`);
  if (!response.ok) {
    const answer = await response.json();
    throw Object.assign(new Error(answer.message), { status: response.status });
  }
  return response.text();
}

/**
 * Listen to events while the page is visible. Each handler gets the document and the seller of its events.
 * `connected` runs at the first connection and after each reconnection, since events may have been missed.
 */
export function watch(handlers, connected, lost) {
  let source;
  function listen() {
    // A browser has six connections for all tabs. Hidden tabs must leave some for a buyer's page.
    source?.close();
    if (document.hidden) return;
    source = new EventSource("/_sandbox/events");
    source.addEventListener("open", connected);
    source.addEventListener("error", lost);
    for (const [kind, handle] of Object.entries(handlers)) {
      source.addEventListener(kind, (event) => {
        const { tenant, document: changed } = JSON.parse(event.data);
        handle(changed, tenant);
      });
    }
  }
  document.addEventListener("visibilitychange", listen);
  listen();
}
