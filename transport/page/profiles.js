/** The ways to talk: what each one asks of the session, and how the page behaves in it. */

const BASE = {
  modalities: ["audio", "text"],
  input_audio_format: "pcm16",
  sample_rate_hz: 16_000,
  output_audio_format: "pcm16",
  input_audio_transcription: {},
};

/**
 * `chunkMs` of sound go into one message; the speaker waits for `bufferMs` of an answer before it begins. `turn` says
 * what ends a turn of the user: a `pause`, which the server hears; a button that is pressed (`send`) or let go
 * (`hold`); or the `model`.
 */
export const PROFILES = {
  conversation: {
    title: "Conversation",
    hint: "Speak when you like. A pause ends your turn, and your voice stops the answer.",
    turn: "pause",
    chunkMs: 60,
    bufferMs: 100,
    session: ({ careful }) => ({
      turn_detection: { type: "server_vad", ...(careful && { false_interruption: true }) },
    }),
  },
  send: {
    title: "Send button",
    hint: "Speak as long as you like, pauses and all. Your turn ends when you send it.",
    turn: "send",
    chunkMs: 100,
    bufferMs: 100,
    session: () => ({ turn_detection: null }),
  },
  hold: {
    title: "Push to talk",
    hint: "Hold the button, or the space bar, while you speak. With a camera, the model watches in between.",
    turn: "hold",
    chunkMs: 200,
    bufferMs: 400,
    camera: true,
    cameraMs: 500,
    visionFollow: true,
    dedupe: true,
    session: () => ({ turn_detection: null, extra_body: { auto_response: true } }),
  },
  duplex: {
    title: "Always on",
    hint: "For models that listen while they speak, and decide by themselves when to answer.",
    turn: "model",
    chunkMs: 80,
    bufferMs: 400,
    camera: true,
    cameraMs: 1000,
    session: () => ({ turn_detection: null, extra_body: { auto_response: true } }),
  },
};

/** The session object that a profile opens. */
export function sessionFor(name, { model, careful }) {
  return { ...BASE, ...(model && { model }), ...PROFILES[name].session({ careful }) };
}

/** What to say of a model for which a profile was not made; empty if it fits. */
export function misfit(name, capabilities) {
  const native = capabilities.supports_model_native_turn_policy;
  if (PROFILES[name].turn === "model" && !native) {
    return "This model takes turns, and does not decide by itself when to answer. Choose Conversation.";
  }
  if (!capabilities.supports_client_commit && ["send", "hold"].includes(PROFILES[name].turn)) {
    return "This model decides by itself when a turn ends. Choose Always on.";
  }
  return "";
}

/** Whether a model takes pictures. */
export function sees(capabilities) {
  const takes = [
    ...(capabilities.required_input_modalities ?? []),
    ...(capabilities.optional_input_modalities ?? []),
  ];
  return takes.includes("video");
}
