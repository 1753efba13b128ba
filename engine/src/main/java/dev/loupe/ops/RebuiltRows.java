package dev.loupe.ops;

/** Rows of attention that were rebuilt, and may still be on their way to the host. */
@FunctionalInterface
public interface RebuiltRows {
  /**
   * Waits for the rows and reads one: into[0 .. count - 1] = its first {@code count} elements.
   *
   * @param row as the tensor has it that the rows were rebuilt in
   * @throws IllegalStateException if other rows were rebuilt there since
   */
  void read(int row, float[] into, int count);
}
