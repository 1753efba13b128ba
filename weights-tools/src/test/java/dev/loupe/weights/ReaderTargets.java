package dev.loupe.weights;

import static java.nio.charset.StandardCharsets.US_ASCII;

import dev.loupe.hub.HubAnswers;
import dev.loupe.weights.config.GenerationJson;
import dev.loupe.weights.format.LlmCTokenizer;
import dev.loupe.weights.format.SafetensorsWriter;
import dev.loupe.weights.ggml.GgmlReaderTest;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.torch.CharacterVocabulary;
import dev.loupe.weights.vocabulary.SentencePieceModel;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a fuzzer attacks: each reader, with a small sound model around the file that is attacked.
 * Jazzer calls {@link #fuzzerInitialize} and {@link #fuzzerTestOneInput}; {@link Fuzzing} says how.
 */
public final class ReaderTargets {
  private static FuzzTarget target = bytes -> {};

  private ReaderTargets() {}

  /** All of them by name, each on files of its own below {@code folder}. */
  static Map<String, FuzzTarget> all(Path folder) throws IOException {
    Map<String, FuzzTarget> all = new LinkedHashMap<>();
    for (String name : seeds(Files.createDirectory(folder.resolve("seeds"))).keySet()) {
      all.put(name, of(name, folder.resolve(name)));
    }
    return all;
  }

  private static FuzzTarget of(String name, Path folder) throws IOException {
    Path model = ModelFolder.random(folder, ModelFolder.LEAST, layout(false));
    return switch (name) {
      case "safetensors" -> on(model, ModelFolder.weights(model));
      case "config" -> on(model, ModelFolder.config(model));
      case "generation" -> on(model, model.resolve(GenerationJson.FILE_NAME));
      case "index" -> {
        ModelFolder.shard(model, 2);
        yield on(model, ModelFolder.index(model));
      }
      case "torch" -> {
        Files.delete(ModelFolder.weights(model));
        yield on(model, model.resolve("pytorch_model.bin"));
      }
      case "gguf", "ggml", "llmc" -> on(model.resolve("m.bin"), model.resolve("m.bin"));
      case "llmc-tokenizer" ->
          bytes -> {
            Files.write(model.resolve(LlmCTokenizer.FILE_NAME), bytes);
            LlmCTokenizer.beside(model.resolve("m.bin"));
          };
      case "tensorflow" -> {
        Path folderOfTf;
        TensorFlowFiles files;
        try (Checkpoint checkpoint = Checkpoint.open(model)) {
          folderOfTf = TensorFlowFiles.write(checkpoint, 2, false, model.resolve("tf"));
          files = TensorFlowFiles.of(checkpoint, 2, false);
        }
        Path index = folderOfTf.resolve("model.ckpt.index");
        yield bytes -> {
          Files.write(index, files.sealed(bytes.clone()));
          open(folderOfTf);
        };
      }
      case "hparams" -> {
        Path folderOfTf;
        try (Checkpoint checkpoint = Checkpoint.open(model)) {
          folderOfTf = TensorFlowFiles.write(checkpoint, 1, false, model.resolve("tf"));
        }
        yield on(folderOfTf, folderOfTf.resolve("hparams.json"));
      }
      case "adapter" ->
          bytes -> {
            Files.write(model.resolve(AdapterConfig.FILE_NAME), bytes);
            AdapterConfig config = AdapterConfig.read(model.resolve(AdapterConfig.FILE_NAME));
            var _ = config.check();
            var _ = config.base();
            var _ = config.scale("transformer.h.0.attn.c_attn", 3);
          };
      case "sentencepiece" ->
          bytes -> {
            Path file = Files.write(model.resolve("spiece.model"), bytes);
            var _ = SentencePieceModel.read(file);
          };
      case "characters" ->
          bytes -> {
            Path file = Files.write(model.resolve("meta.pkl"), bytes);
            var _ = CharacterVocabulary.read(file);
          };
      case "hub" -> HubAnswers::read;
      default -> throw new IllegalArgumentException(name);
    };
  }

  private static RandomCheckpoint.Layout layout(boolean bf16) {
    return new RandomCheckpoint.Layout(bf16 ? DType.BF16 : DType.F16, false, true, false);
  }

  private static FuzzTarget on(Path source, Path file) {
    return bytes -> {
      Files.write(file, bytes);
      open(source);
    };
  }

  private static void open(Path source) throws IOException {
    try (Checkpoint checkpoint = Checkpoint.open(source)) {
      for (StoredTensor tensor : checkpoint.tensors()) {
        float[] all = new float[(int) tensor.elements()];
        tensor.read(0, all, 0, all.length);
      }
      var _ = Inspection.of(checkpoint).text(true);
    }
  }

  /** A sound file for each target. */
  static Map<String, byte[]> seeds(Path folder) throws IOException {
    Map<String, byte[]> seeds = new LinkedHashMap<>();
    Path model = ModelFolder.random(folder.resolve("m"), ModelFolder.LEAST, layout(true));
    seeds.put("safetensors", Files.readAllBytes(ModelFolder.weights(model)));
    seeds.put("config", Files.readAllBytes(ModelFolder.config(model)));
    seeds.put(
        "generation",
        "{\"bos_token_id\": 1, \"eos_token_id\": [4, 2], \"x\": 1}".getBytes(US_ASCII));
    Map<SafetensorsWriter.Entry, byte[]> tensors = TorchWriter.tensors(model);
    TorchWriter zip = new TorchWriter(2, TorchWriter.Lie.TRANSPOSED, true);
    seeds.put("torch", zip.zip("a/", PickleWriter.orderedDict(zip.stateDict(tensors))));
    Path sharded = ModelFolder.random(folder.resolve("s"), ModelFolder.LEAST, layout(false));
    ModelFolder.shard(sharded, 2);
    seeds.put("index", Files.readAllBytes(ModelFolder.index(sharded)));
    try (Checkpoint checkpoint = Checkpoint.open(model)) {
      Path llmc = LlmCFile.write(checkpoint, true, 0, folder.resolve("l.bin"));
      seeds.put("llmc", Files.readAllBytes(llmc));
      Path tf = TensorFlowFiles.write(checkpoint, 2, false, folder.resolve("tf"));
      seeds.put("tensorflow", Files.readAllBytes(tf.resolve("model.ckpt.index")));
      seeds.put("hparams", Files.readAllBytes(tf.resolve("hparams.json")));
    }
    GgufModel gguf = new GgufModel(2, 32, 32, 3, 5, true);
    gguf.file
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", "a", "b", "ab", "<|endoftext|>", "[PAD4]")
        .ints("tokenizer.ggml.token_type", 1, 1, 1, 3, 5)
        .texts("tokenizer.ggml.merges", "a b")
        .u32("tokenizer.ggml.eos_token_id", 3);
    seeds.put("gguf", gguf.file.bytes());
    GgufModel old = new GgufModel(2, 32, 128, 5, 7, false);
    seeds.put("ggml", new GgmlReaderTest.File(old, 32, 2002).make());
    List<byte[]> tokens = new ArrayList<>();
    for (String token : List.of("a", "b", "ab", "aab", "<|endoftext|>")) {
      tokens.add(token.getBytes(US_ASCII));
    }
    Path tokenizer = LlmCFile.writeTokenizer(tokens, 2, folder.resolve("t.bin"));
    seeds.put("llmc-tokenizer", Files.readAllBytes(tokenizer));
    seeds.put(
        "adapter",
        ("{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"a/b\", \"r\": 3, \"lora_alpha\": 6,"
                + " \"rank_pattern\": {\"c_.*\": 3}, \"alpha_pattern\": {}, \"modules_to_save\": [\"wte\"]}")
            .getBytes(US_ASCII));
    seeds.put(
        "sentencepiece",
        new byte[] {
          0x0A,
          10,
          0x0A,
          1,
          'a',
          0x15,
          0,
          0,
          (byte) 0x80,
          (byte) 0xBF,
          0x18,
          2,
          0x12,
          4,
          0x18,
          2,
          0x28,
          1,
          0x1A,
          4,
          0x18,
          1,
          0x20,
          0
        });
    Object meta = Map.of("vocab_size", 3, "itos", Map.of(0, "a", 1, "b", 2, "\u00e9"));
    seeds.put("characters", PickleWriter.of(4, meta));
    seeds.put(
        "hub",
        "{\"sha\": \"0123456789abcdef\", \"siblings\": [{\"rfilename\": \"config.json\"}]}"
            .getBytes(US_ASCII));
    return seeds;
  }

  public static void fuzzerInitialize(String[] args) throws IOException {
    target = of(args[0], Files.createTempDirectory("loupe-fuzz-").resolve("m"));
  }

  public static void fuzzerTestOneInput(byte[] bytes) {
    FuzzTarget.check(target, bytes);
  }
}
