package dev.loupe.ops;

import dev.loupe.weights.Gpt2Config;

/**
 * How large a session will be, for a backend to say beforehand whether it has room.
 *
 * @param config of the model
 * @param positions most positions of a sequence, and most rows of a pass unless there are more
 *     samples
 * @param samples sequences
 * @param logitRows most rows of logits made at a time
 * @param writes whether tokens will be written
 * @param mapLayers layers whose attention is kept; 0 without maps
 * @param mapHeads heads of each of them
 * @param scores whether their scores are kept too
 * @param mapScratch f32 cells that maps of a prompt are rebuilt in
 */
public record SessionSize(
    Gpt2Config config,
    int positions,
    int samples,
    int logitRows,
    boolean writes,
    int mapLayers,
    int mapHeads,
    boolean scores,
    long mapScratch) {

  /** Most rows of a pass. */
  public int rows() {
    return Math.max(positions, samples);
  }
}
