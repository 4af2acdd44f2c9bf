/** What the page says to the speaker without a message: the places of three whole numbers in shared memory. */

export const EPOCH = 0; // sound of an older one is void
export const HOLD = 1; // 1: stand still at the sample that plays
export const LAST = 2; // the block that was due when the epoch was raised
