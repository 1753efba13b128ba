package dev.loupe.weights;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.List;

/**
 * One format of checkpoints. To add a format, write its reader and put it into {@link #FORMATS}.
 *
 * <p>A reader answers for the format alone: that every tensor lies inside its file and is as large
 * as its shape says. That the tensors make up a GPT-2 is for {@link Checkpoint} to check.
 */
interface CheckpointReader {
  /** All formats, in the order in which a folder is searched for their files. */
  List<CheckpointReader> FORMATS = List.of(new SafetensorsReader(), new ShardIndexReader());

  /** What its file is called in a model's folder. */
  String fileName();

  /** Whether the file's content is in this format, however the file is called. */
  boolean recognises(MappedFile file);

  /**
   * Reads the file's table of contents, not the weights.
   *
   * @param arena keeps what the tensors are views of
   * @throws CheckpointException if the file is damaged
   */
  Contents read(MappedFile file, Arena arena) throws CheckpointException;

  /**
   * What is in a checkpoint.
   *
   * @param config the model's shape
   * @param tensors everything that is stored, in Hugging Face's layout
   * @param files the files that hold the weights
   */
  record Contents(Gpt2Config config, List<Entry> tensors, List<MappedFile> files) {}

  /**
   * A tensor as it is stored, of any type and for any use.
   *
   * @param name as in the file
   * @param dtype as in the file, not necessarily a {@link DType}
   * @param data in the file, row-major
   * @param file the file that holds it, for messages
   */
  record Entry(String name, String dtype, List<Long> shape, MemorySegment data, Path file) {}
}
