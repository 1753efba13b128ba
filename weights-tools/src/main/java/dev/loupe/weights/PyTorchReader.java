package dev.loupe.weights;

import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * PyTorch's files (.bin, .pt, .pth): a dict of Hugging Face's tensors with a config.json beside the
 * file, or a checkpoint of {@link NanoGpt}.
 */
final class PyTorchReader implements CheckpointReader {
  static final String FILE_NAME = "pytorch_model.bin";
  private static final String PREFIXED_WTE = "transformer.wte.weight";

  @Override
  public List<String> fileNames() {
    return List.of(FILE_NAME, "ckpt.pt", "model.pt", "model.pth");
  }

  @Override
  public boolean recognises(MappedFile file) {
    return TorchFile.recognises(file);
  }

  @Override
  public Contents read(MappedFile file, Arena arena) throws CheckpointException {
    TorchFile torch = TorchFile.open(file);
    Optional<NanoGpt> nano = NanoGpt.in(torch);
    return nano.isPresent()
        ? nano.get().contents(arena)
        : new Contents(
            ConfigJson.read(file.path().resolveSibling(ConfigJson.FILE_NAME)),
            entries(torch),
            List.of(file));
  }

  /**
   * The tensors of a state dict, in its order.
   *
   * @throws CheckpointException if the file is damaged or holds something else
   */
  static List<Entry> entries(MappedFile file) throws CheckpointException {
    return entries(TorchFile.open(file));
  }

  private static List<Entry> entries(TorchFile torch) throws CheckpointException {
    Map<String, Object> root = torch.root();
    Map<String, TorchTensor> tensors = TorchFile.tensors(root);
    if (tensors.isEmpty()) {
      throw new CheckpointException(
          "%s holds a dict without tensors%s"
              .formatted(
                  torch.file().path(),
                  root.isEmpty()
                      ? ""
                      : "; it starts with " + StrictJson.shown(root.keySet().iterator().next())));
    }
    return entries(torch, tensors);
  }

  /** These tensors, without a head that is wte itself: torch saves both names for one tensor. */
  static List<Entry> entries(TorchFile torch, Map<String, TorchTensor> tensors)
      throws CheckpointException {
    TorchTensor wte = tensors.getOrDefault(PREFIXED_WTE, tensors.get("wte.weight"));
    List<Entry> entries = new ArrayList<>();
    for (Map.Entry<String, TorchTensor> tensor : tensors.entrySet()) {
      if (!tensor.getKey().equals(Gpt2Layout.HEAD) || !tensor.getValue().equals(wte)) {
        entries.add(torch.entry(tensor.getKey(), tensor.getValue()));
      }
    }
    return entries;
  }
}
