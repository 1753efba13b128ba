package dev.loupe.weights.torch;

import dev.loupe.weights.config.HfConfig;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * PyTorch's files (.bin, .pt, .pth, .ckpt, .pkl): a dict of Hugging Face's tensors, at any level of
 * what was saved, with a config.json beside the file; or a checkpoint of {@link NanoGpt}.
 */
public final class PyTorchReader implements CheckpointReader {
  public static final String FILE_NAME = "pytorch_model.bin";

  @Override
  public List<String> fileNames() {
    return List.of(
        FILE_NAME,
        "ckpt.pt",
        "model.pt",
        "model.pth",
        "pytorch_model.*.bin",
        "*.pt",
        "*.pth",
        "*.ckpt",
        "*.pkl");
  }

  @Override
  public boolean recognises(InputFile file) {
    return TorchFile.recognises(file);
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    TorchFile torch = TorchFile.open(file);
    Optional<NanoGpt> nano = NanoGpt.in(torch);
    return nano.isPresent()
        ? nano.get().contents(arena)
        : new Contents(HfConfig.beside(file.path()), entries(torch), List.of(file));
  }

  /**
   * The tensors of a state dict, in its order.
   *
   * @throws CheckpointException if the file is damaged or holds something else
   */
  public static List<Entry> entries(InputFile file) throws CheckpointException {
    return entries(TorchFile.open(file));
  }

  private static List<Entry> entries(TorchFile torch) throws CheckpointException {
    return entries(torch, StateDict.of(torch));
  }

  /** These tensors as entries. */
  public static List<Entry> entries(TorchFile torch, Map<String, TorchTensor> tensors)
      throws CheckpointException {
    List<Entry> entries = new ArrayList<>();
    for (Map.Entry<String, TorchTensor> tensor : tensors.entrySet()) {
      entries.add(torch.entry(tensor.getKey(), tensor.getValue()));
    }
    return entries;
  }
}
