// Keeps what {% job_progress job %} shows up to date: it asks once a second while the page is seen, until the job's end.
// Without it the page shows the same as of when it was loaded, with a link to load it again.
//
// Events, on the element and upwards: django-jobs:progress and django-jobs:finished, with what the server said (state,
// done, total, message) as detail; django-jobs:gone where the job, or the right to see it, is no longer there.

const INTERVAL = 1_000;
const LONGEST_PAUSE = 60_000;
const PATIENCE = 10_000;
const OVER = new Set(["succeeded", "failed", "cancelled"]);
const UNDER_WAY = new Set(["running", "stopping"]);

class JobProgress extends HTMLElement {
  #texts;
  #format;
  #timer;
  #failures = 0;
  #isAsking = false;
  #isOver = false;
  #look = () => this.#ask();

  connectedCallback() {
    if (!this.dataset.url || this.#isOver) {
      return;
    }
    this.#texts = JSON.parse(this.dataset.texts);
    const language = this.dataset.language || undefined;
    this.#format = (number) => {
      const digits = Number.isInteger(number) ? 0 : 2;
      return new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(number);
    };
    this.#offerReload(false);
    document.addEventListener("visibilitychange", this.#look);
    this.#wait(INTERVAL);
  }

  disconnectedCallback() {
    this.#stop();
  }

  async #ask() {
    clearTimeout(this.#timer);
    // A page that nobody sees asks nothing; it asks at once when it is seen again.
    if (this.#isAsking || this.#isOver || document.visibilityState !== "visible") {
      return;
    }
    this.#isAsking = true;
    try {
      const response = await fetch(this.dataset.url, {
        cache: "no-store",
        headers: { Accept: "application/json" },
        signal: AbortSignal.timeout(PATIENCE),
      });
      if (response.status === 404) {
        this.#end("gone", this.#texts.gone);
        this.#tell("gone");
        return;
      }
      if (!response.ok) {
        throw new Error(`the server answered ${response.status}`);
      }
      this.#take(await response.json());
      this.#failures = 0;
    } catch {
      this.#failures += 1;
      this.#say("message", this.#texts.lost);
      this.#offerReload(true);
    } finally {
      this.#isAsking = false;
    }
    if (this.isConnected && !this.#isOver) {
      this.#wait(Math.min(INTERVAL * 2 ** this.#failures, LONGEST_PAUSE));
    }
  }

  #take(said) {
    const state = this.#texts.states[said.state];
    if (state === undefined) {
      throw new Error("that was another server's answer");
    }
    this.#offerReload(false);
    this.#fill(said);
    this.#say("count", this.#counted(said));
    this.#say("message", said.message);
    if (OVER.has(said.state)) {
      this.#end(said.state, state);
      this.#tell("finished", said);
      return;
    }
    this.dataset.state = said.state;
    this.#say("state", state);
    this.#tell("progress", said);
  }

  #fill({ state, done, total }) {
    const bar = this.querySelector("progress");
    if (bar === null) {
      return;
    }
    if (total !== null) {
      bar.value = total > 0 ? Math.min(done / total, 1) : 1;
    } else if (UNDER_WAY.has(state)) {
      bar.removeAttribute("value");
    } else {
      bar.value = state === "succeeded" ? 1 : 0;
    }
  }

  #counted({ done, total }) {
    if (done === null) {
      return "";
    }
    if (total === null) {
      return this.#format(done);
    }
    return this.#texts.count.replace("%(done)s", this.#format(done)).replace("%(total)s", this.#format(total));
  }

  #say(what, text) {
    const element = this.querySelector(`.django-jobs-${what}`);
    // Screen readers say again what is written again.
    if (element !== null && element.textContent !== text) {
      element.textContent = text;
    }
  }

  #offerReload(isOffered) {
    const link = this.querySelector(".django-jobs-reload");
    if (link !== null) {
      link.hidden = !isOffered;
    }
  }

  #end(word, text) {
    this.#isOver = true;
    this.#stop();
    this.dataset.state = word;
    this.#say("state", text);
    this.#offerReload(false);
  }

  #tell(what, detail = null) {
    this.dispatchEvent(new CustomEvent(`django-jobs:${what}`, { bubbles: true, detail }));
  }

  #wait(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#look, pause);
  }

  #stop() {
    clearTimeout(this.#timer);
    document.removeEventListener("visibilitychange", this.#look);
  }
}

if (!customElements.get("django-jobs-progress")) {
  customElements.define("django-jobs-progress", JobProgress);
}
