/** The camera: a preview, and a small picture every so often. */

const LONGEST_SIDE = 448;
const QUALITY = 0.7;

export class Camera {
  #stream = null;
  #timer = 0;
  #canvas = document.createElement("canvas");

  /** @param {HTMLVideoElement} preview */
  constructor(preview) {
    this.preview = preview;
  }

  /** Show the preview, and give a JPEG (base64) every `everyMs`. Raises what the browser says if it may not. */
  async open(everyMs, onFrame) {
    if (!navigator.mediaDevices) throw new DOMException("no secure context", "SecurityError");
    this.#stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, facingMode: "user" } });
    this.preview.srcObject = this.#stream;
    this.preview.hidden = false;
    await this.preview.play();
    this.#timer = setInterval(() => this.#frame(onFrame), everyMs);
  }

  close() {
    clearInterval(this.#timer);
    this.#stream?.getTracks().forEach((track) => track.stop());
    this.#stream = null;
    this.preview.srcObject = null;
    this.preview.hidden = true;
  }

  #frame(onFrame) {
    const { videoWidth: width, videoHeight: height } = this.preview;
    if (!width || !this.#stream) return;
    const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#canvas.getContext("2d").drawImage(this.preview, 0, 0, this.#canvas.width, this.#canvas.height);
    onFrame(this.#canvas.toDataURL("image/jpeg", QUALITY).split(",")[1]);
  }
}
