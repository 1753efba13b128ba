package dev.loupe.weights;

import com.google.gson.stream.JsonReader;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.config.HfConfig;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.SafetensorsReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.torch.PyTorchReader;
import dev.loupe.weights.torch.TorchFile;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * Safetensors or PyTorch files, several under an index that says which file holds which tensor:
 *
 * <pre>{"metadata": {...}, "weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}}</pre>
 *
 * <p>Source: the sharded checkpoints of Hugging Face transformers ({@code save_pretrained}).
 */
final class ShardIndexReader implements CheckpointReader {
  private static final String WEIGHT_MAP = "weight_map";
  private static final int MAX_BYTES = 100_000_000;
  private static final int MAX_TENSORS = 100_000;

  @Override
  public List<String> fileNames() {
    String safetensors = SafetensorsReader.FILE_NAME + ".index.";
    String torch = PyTorchReader.FILE_NAME + ".index.";
    return List.of( // with a star those of a variant, model.safetensors.index.fp16.json
        safetensors + "json", torch + "json", safetensors + "*.json", torch + "*.json");
  }

  @Override
  public boolean recognises(InputFile file) {
    return file.byteAt(0) == '{';
  }

  @Override
  public Contents read(InputFile index, Arena arena) throws CheckpointException {
    if (index.bytes().byteSize() > MAX_BYTES) {
      throw new CheckpointException(
          "%s has %d bytes, too many for an index of shards"
              .formatted(index.path(), index.bytes().byteSize()));
    }
    SortedMap<String, List<String>> byShard =
        StrictJson.parse(index.path().toString(), index.bytes(), in -> byShard(in, index.path()));
    HfConfig config = HfConfig.beside(index.path());
    List<Entry> tensors = new ArrayList<>();
    List<InputFile> files = new ArrayList<>();
    for (Map.Entry<String, List<String>> shard : byShard.entrySet()) {
      InputFile file = InputFile.map(sibling(index.path(), shard.getKey()), arena);
      files.add(file);
      Map<String, Entry> stored = new HashMap<>();
      for (Entry entry :
          TorchFile.recognises(file)
              ? PyTorchReader.entries(file)
              : SafetensorsReader.entries(file)) {
        stored.put(entry.name(), entry);
      }
      for (String name : shard.getValue()) {
        Entry entry = stored.get(name);
        if (entry == null && config.tied() && Gpt2Layout.isHead(name)) {
          continue; // a tied head may be named and not stored
        }
        if (entry == null) {
          throw new CheckpointException(
              "%s has no %s, which %s says it holds"
                  .formatted(file.path(), StrictJson.shown(name), index.path().getFileName()));
        }
        tensors.add(entry);
      }
    }
    return new Contents(config, tensors, files);
  }

  /** The names of the tensors that each shard should hold, the shards in the order of names. */
  private static SortedMap<String, List<String>> byShard(JsonReader in, Path index)
      throws IOException {
    SortedMap<String, List<String>> byShard = new TreeMap<>();
    StrictJson.beginObject(in, index.toString());
    boolean found = false;
    while (in.hasNext()) {
      if (!in.nextName().equals(WEIGHT_MAP)) {
        in.skipValue();
        continue;
      }
      if (found) {
        throw new CheckpointException("%s gives %s twice".formatted(index, WEIGHT_MAP));
      }
      found = true;
      weightMap(in, index, byShard);
    }
    in.endObject();
    if (!found) {
      throw new CheckpointException(
          "%s is JSON but no index of shards (it has no %s); give the model's folder"
              .formatted(index, WEIGHT_MAP));
    }
    return byShard;
  }

  private static void weightMap(JsonReader in, Path index, SortedMap<String, List<String>> byShard)
      throws IOException {
    StrictJson.beginObject(in, "%s: %s".formatted(index, WEIGHT_MAP));
    for (int count = 0; in.hasNext(); count++) {
      if (count == MAX_TENSORS) {
        throw new CheckpointException(
            "%s lists more than %d tensors, too many for a GPT-2".formatted(index, MAX_TENSORS));
      }
      String tensor = in.nextName();
      String shard =
          StrictJson.string(in, "%s: the shard of %s".formatted(index, StrictJson.shown(tensor)));
      byShard.computeIfAbsent(shard, name -> new ArrayList<>()).add(tensor);
    }
    in.endObject();
  }

  private static Path sibling(Path index, String shard) throws CheckpointException {
    if (!InputFile.isFileName(shard)) {
      throw new CheckpointException(
          "%s names the shard \"%s\", which is not the name of a file beside it"
              .formatted(index, StrictJson.shown(shard)));
    }
    return index.resolveSibling(shard);
  }
}
