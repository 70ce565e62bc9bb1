// The control API, as the pages use it.

/** Ask the sandbox. What a browser says where nobody responds ("Failed to fetch") tells people nothing. */
export async function ask(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("The sandbox does not respond.");
  }
}

/** Call the control API and return its response; throws an Error with the sandbox's own words. */
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

/** Return the text at an address of the sandbox. */
export async function text(path) {
  const response = await ask(`/_sandbox/${path}`);
  if (!response.ok) {
    const answer = await response.json();
    throw Object.assign(new Error(answer.message), { status: response.status });
  }
  return response.text();
}

/**
 * Listen to what happens, while somebody can see the page. Each handler gets the seller and the document of its events.
 * `connected` runs at the first connection and after each that broke: what happened meanwhile was missed.
 */
export function watch(handlers, connected, lost) {
  let source;
  function listen() {
    // A browser has six connections for all of its tabs: those that nobody sees would leave none for a buyer's page.
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
