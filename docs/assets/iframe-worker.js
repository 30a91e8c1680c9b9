/* Browsers start no workers on pages that are opened as files. There, this runs the script of a
   worker, which the site's search needs, in a hidden frame of the page instead. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.onmessage = null;
      this.onerror = null;
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.report(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.onload = () => this.start();
      script.onerror = () => this.report(new ErrorEvent("error", { message: `no ${address}` }));
      script.src = new URL(address, location.href);
      inside.document.body.append(script);
    }

    start() {
      const messages = this.waiting;
      this.waiting = null;
      messages.forEach((data) => this.postMessage(data));
    }

    report(event) {
      setTimeout(() => {
        this[`on${event.type}`]?.(event);
        this.dispatchEvent(event);
      });
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
        return;
      }
      const inside = this.frame.contentWindow;
      setTimeout(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
