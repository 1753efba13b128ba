package dev.loupe.weights;

import java.lang.foreign.Arena;
import java.util.List;
import java.util.Locale;

/**
 * Knows an ONNX file when it sees one, and says that it is out of scope: such a file holds a graph
 * of operations with its weights under names of the exporter's making, not a checkpoint.
 *
 * <p>Source: {@code ModelProto} in onnx.proto. Its first field is the version of the format, its
 * next the producer's name, the graph or the operators' versions.
 */
final class OnnxReader implements CheckpointReader {
  private static final int IR_VERSION = 1 << 3; // a protobuf tag: field 1, a number
  private static final int LATEST = 31; // 13 in 2025
  private static final int LENGTH_DELIMITED = 2;
  private static final List<Integer> NEXT = List.of(2, 3, 4, 6, 7, 8, 14);

  @Override
  public List<String> fileNames() {
    return List.of();
  }

  @Override
  public boolean recognises(MappedFile file) {
    if (file.path().toString().toLowerCase(Locale.ROOT).endsWith(".onnx")) {
      return true;
    }
    return file.bytes().byteSize() > 2
        && file.byteAt(0) == IR_VERSION
        && file.byteAt(1) > 0
        && file.byteAt(1) <= LATEST
        && (file.byteAt(2) & 7) == LENGTH_DELIMITED
        && NEXT.contains(file.byteAt(2) >> 3);
  }

  @Override
  public Contents read(MappedFile file, Arena arena) throws CheckpointException {
    throw new CheckpointException(
        file.path()
            + " is an ONNX graph, which is out of scope: give the checkpoint it was exported from");
  }
}
