package dev.loupe.weights.format;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Knows files that other programs keep a model in when it sees one, and says that they are out of
 * scope: ONNX, whose files hold a graph of operations with weights under names of the exporter's
 * making, and the formats of Keras and Flax, which transformers wrote up to version 4.
 *
 * <p>Sources: {@code ModelProto} in onnx.proto, whose first field is the version of the format and
 * the next the producer's name, the graph or the operators' versions; the HDF5 file format, section
 * II.A; the MessagePack specification, where 0x8X is a map of X entries and 0xA0 to 0xBF a string.
 */
public final class ForeignReader implements CheckpointReader {
  private static final int IR_VERSION = 1 << 3; // a protobuf tag: field 1, a number
  private static final int LATEST = 31; // 13 in 2025
  private static final int LENGTH_DELIMITED = 2;
  private static final List<Integer> NEXT = List.of(2, 3, 4, 6, 7, 8, 14);
  private static final byte[] HDF5 = "\u0089HDF\r\n\u001a\n".getBytes(ISO_8859_1);

  private static final String ONNX =
      "is an ONNX graph, which is out of scope: give the checkpoint it was exported from";
  private static final String KERAS = "holds weights of Keras (HDF5), which are not read";
  private static final String FLAX = "holds weights of Flax (MessagePack), which are not read";
  private static final String SAVE =
      ": open the model with transformers 4 (from_tf=True or from_flax=True) and save it as"
          + " safetensors";

  /** What lies in folders of models, beside weights that are read or alone. */
  private static final Map<String, String> IN_FOLDERS = new LinkedHashMap<>();

  static {
    IN_FOLDERS.put("tf_model.h5", KERAS + SAVE);
    IN_FOLDERS.put("flax_model.msgpack", FLAX + SAVE);
    IN_FOLDERS.put("onnx", "holds ONNX graphs, which are out of scope");
    IN_FOLDERS.put("model.onnx", ONNX);
    IN_FOLDERS.put("decoder_model.onnx", ONNX);
    IN_FOLDERS.put("rust_model.ot", "holds weights of rust-bert, which are not read");
    IN_FOLDERS.put("saved_model.pb", "is a graph of TensorFlow, which is out of scope");
    IN_FOLDERS.put("openvino_model.xml", "is a graph of OpenVINO, which is out of scope");
  }

  /** The sentence on a folder that holds no weights that are read, if it holds others. */
  public static Optional<String> inFolder(Path folder) {
    return IN_FOLDERS.entrySet().stream()
        .filter(known -> Files.exists(folder.resolve(known.getKey())))
        .map(known -> "%s %s".formatted(folder.resolve(known.getKey()), known.getValue()))
        .findFirst();
  }

  @Override
  public List<String> fileNames() {
    return List.of();
  }

  @Override
  public boolean recognises(InputFile file) {
    return what(file) != null;
  }

  private static @Nullable String what(InputFile file) {
    String name = file.path().toString().toLowerCase(Locale.ROOT);
    if (name.endsWith(".onnx") || isOnnx(file)) {
      return ONNX;
    }
    if (file.startsWith(HDF5)) {
      return KERAS + SAVE;
    }
    return name.endsWith(".msgpack") || isMap(file) ? FLAX + SAVE : null;
  }

  private static boolean isOnnx(InputFile file) {
    return file.bytes().byteSize() > 2
        && file.byteAt(0) == IR_VERSION
        && file.byteAt(1) > 0
        && file.byteAt(1) <= LATEST
        && (file.byteAt(2) & 7) == LENGTH_DELIMITED
        && NEXT.contains(file.byteAt(2) >> 3);
  }

  private static boolean isMap(InputFile file) {
    return file.bytes().byteSize() > 2
        && (file.byteAt(0) & 0xFF) > 0x80
        && (file.byteAt(0) & 0xFF) < 0x90
        && (file.byteAt(1) & 0xE0) == 0xA0
        && Character.isLetter(file.byteAt(2));
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    throw new CheckpointException("%s %s".formatted(file.path(), what(file)));
  }
}
