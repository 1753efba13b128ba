package dev.loupe.weights.format;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.HfConfig;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.DenseData;
import dev.loupe.weights.tensor.TensorData;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * One format of checkpoints.
 *
 * <p>A reader answers for the format alone: that every tensor lies inside its file and is as large
 * as its shape says. That the tensors make up a GPT-2 is for who opens a checkpoint to check.
 */
public interface CheckpointReader {
  /** The note of a format that doesn't say which GELU its models have; not for one who chose. */
  String ERF_ASSUMED =
      "the checkpoint doesn't say which GELU it was trained with: gelu (erf) is assumed, as in"
          + " today's nanoGPT; gelu_new is the tanh form";

  /**
   * What its file is called in a model's folder, likeliest first. Of a name with a star, {@code
   * *.gguf}, a folder may hold one file only.
   */
  List<String> fileNames();

  /** Whether the file's content is in this format, however the file is called. */
  boolean recognises(InputFile file);

  /**
   * Reads the file's table of contents, not the weights.
   *
   * @param arena keeps what the tensors are views of
   * @throws CheckpointException if the file is damaged
   */
  Contents read(InputFile file, Arena arena) throws CheckpointException;

  /**
   * What is in a checkpoint.
   *
   * @param config the model's shape
   * @param tensors everything that is stored, in Hugging Face's layout
   * @param files the files that hold the weights
   * @param vocabulary the tokenizer, of formats that carry one
   * @param notes for the user: what the format leaves open and was assumed, one sentence each
   * @param hf what the files of Hugging Face's beside the weights say, of formats that go by them
   */
  public record Contents(
      Gpt2Config config,
      List<Entry> tensors,
      List<InputFile> files,
      Optional<Vocabulary> vocabulary,
      List<String> notes,
      Optional<HfConfig> hf) {
    /** Of a format that says all about the model in its own files. */
    public Contents(
        Gpt2Config config,
        List<Entry> tensors,
        List<InputFile> files,
        Optional<Vocabulary> vocabulary,
        List<String> notes) {
      this(config, tensors, files, vocabulary, notes, Optional.empty());
    }

    /** Of a format that says all about the model and nothing about its tokenizer. */
    public Contents(Gpt2Config config, List<Entry> tensors, List<InputFile> files) {
      this(config, tensors, files, Optional.empty(), List.of());
    }

    /** Of Hugging Face's formats. */
    public Contents(HfConfig hf, List<Entry> tensors, List<InputFile> files) {
      this(hf.config(), tensors, files, Optional.empty(), hf.notes(), Optional.of(hf));
    }
  }

  /**
   * A tensor as it is stored, of any type and for any use.
   *
   * @param name Hugging Face's, with anything in front of it
   * @param dtype as in the file, not necessarily a {@link DType}
   * @param shape extents, outermost first; of matrices [in, out]
   * @param data null if it is of a type that can't be read, which matters only if it is needed
   * @param file the file that holds it, for messages
   */
  public record Entry(
      String name, String dtype, List<Long> shape, @Nullable TensorData data, Path file) {
    /** Of elements that the file has as they are wanted, row-major and little-endian. */
    public static Entry dense(
        String name, String dtype, List<Long> shape, MemorySegment stored, Path file) {
      DType readable = DType.named(dtype);
      return new Entry(
          name, dtype, shape, readable == null ? null : new DenseData(readable, stored), file);
    }
  }
}
