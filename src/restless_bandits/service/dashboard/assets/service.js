// What the page asks of the service, and what comes by itself.
const sign = () => document.getElementById("connection");

export function connection(state, text) {
  sign().className = `connection ${state}`;
  if (sign().textContent !== text) sign().textContent = text;
}

export async function read(path, given = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(given)}`, { headers: { accept: "application/json" } });
  if (answer.status === 401) location.assign("/login");
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.error ?? `the service answers ${answer.status}`);
  return found;
}

// Follow a stream for as long as somebody looks; `given()` tells where to go on.
export function follow(given, told) {
  let source = null,
    closed = false;
  const open = () => {
    if (closed || source || document.hidden) return;
    source = new EventSource(`/page/live?${new URLSearchParams(given())}`);
    source.onopen = () => connection("live", "live");
    source.onmessage = (event) => told(JSON.parse(event.data));
    source.onerror = () => {
      connection("lost", "connecting again");
      if (source?.readyState !== EventSource.CLOSED) return;
      source = null;
      // A stream does not say why it was refused; what it is about does.
      const { name } = given(),
        place = name === undefined ? "/page/overview" : `/page/agent?${new URLSearchParams({ name })}`;
      if (!closed)
        setTimeout(
          () =>
            fetch(place).then(
              (answer) => {
                if (answer.status === 401) location.assign("/login");
                else if (answer.status === 404) connection("lost", "the agent was deleted");
                else open();
              },
              () => setTimeout(open, 2000),
            ),
          1000,
        );
    };
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const seen = () => {
    if (document.hidden) {
      close();
      connection("", "paused");
    } else open();
  };
  document.addEventListener("visibilitychange", seen);
  open();
  return () => {
    closed = true;
    close();
    document.removeEventListener("visibilitychange", seen);
  };
}
