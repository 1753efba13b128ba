package dev.loupe.weights.torch;

import dev.loupe.weights.io.StrictJson;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * All that a pickle may ask for by name, as {@code torch.save} uses it. Nothing of Python is run:
 * calls of tensor makers give a {@link TorchTensor}, calls of the few {@link #VALUES} give {@link
 * PickleMachine#NONE}, and every other name is refused.
 *
 * <p>Source: {@code torch/_utils.py} and {@code torch/serialization.py} of PyTorch.
 */
final class TorchObjects {
  private static final Set<String> DICTS =
      Set.of(
          "collections.OrderedDict",
          // of Lightning's versions: its hyper_parameters
          "lightning_fabric.utilities.data.AttributeDict",
          "lightning.fabric.utilities.data.AttributeDict",
          "pytorch_lightning.utilities.parsing.AttributeDict");

  /** Programs whose own types in a file tell that it is theirs. */
  private static final Map<String, String> PROGRAMS =
      Map.of("megatron", "Megatron-LM", "fairseq", "fairseq");

  private static final Set<String> TENSORS =
      Set.of("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2");
  private static final Set<String> PARAMETERS =
      Set.of("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state");

  /** Types of values that a training run leaves beside its weights. */
  private static final Set<String> VALUES =
      Set.of(
          "numpy.core.multiarray.scalar",
          "numpy._core.multiarray.scalar",
          "numpy.dtype",
          "argparse.Namespace",
          "_codecs.encode",
          "torch.Size",
          "torch.device",
          "torch.float64",
          "torch.float32",
          "torch.float16",
          "torch.bfloat16");

  private static final Pattern STORAGE =
      Pattern.compile("torch\\.(?:cuda\\.)?([A-Z][A-Za-z0-9]*)Storage");
  private static final Map<String, String> DTYPES =
      Map.of(
          "Double", "F64",
          "Float", "F32",
          "Half", "F16",
          "BFloat16", "BF16",
          "Long", "I64",
          "Int", "I32",
          "Short", "I16",
          "Char", "I8",
          "Byte", "U8",
          "Bool", "BOOL");

  private final Map<String, TorchStorage> storages = new HashMap<>();

  /** A name that may be called, or the type of a storage. */
  private record Global(String name) {}

  /** All storages that the pickle has named, by their keys. */
  Map<String, TorchStorage> storages() {
    return storages;
  }

  /**
   * What a pickle means by a name.
   *
   * @throws IllegalArgumentException if no weights need it; the message names it
   */
  Object global(String module, String name) {
    String full = module + "." + name;
    if (DICTS.contains(full)
        || TENSORS.contains(full)
        || PARAMETERS.contains(full)
        || VALUES.contains(full)
        || !dtype(full).isEmpty()) {
      return new Global(full);
    }
    int dot = module.indexOf('.');
    String program = PROGRAMS.get(dot < 0 ? module : module.substring(0, dot));
    throw new IllegalArgumentException(
        "a call for %s, %s"
            .formatted(
                StrictJson.shown(full),
                program == null
                    ? "which no weights need: refused"
                    : "so it is a checkpoint of %s: convert it to Hugging Face's format first"
                        .formatted(program)));
  }

  /** The elements' type in a storage of this type, or nothing if it is none. */
  private static String dtype(String global) {
    Matcher storage = STORAGE.matcher(global);
    return storage.matches() ? DTYPES.getOrDefault(storage.group(1), "") : "";
  }

  /**
   * What a call gives.
   *
   * @throws IllegalArgumentException if the arguments make no sense
   */
  Object call(Object callee, List<?> arguments) {
    if (!(callee instanceof Global(String name))) {
      throw new IllegalArgumentException("a call of what can't be called");
    }
    if (DICTS.contains(name)) {
      return dict(arguments);
    }
    if (TENSORS.contains(name)) {
      return TorchTensor.of(arguments);
    }
    if (PARAMETERS.contains(name)) {
      if (arguments.isEmpty() || !(arguments.getFirst() instanceof TorchTensor tensor)) {
        throw new IllegalArgumentException("a parameter that is no tensor");
      }
      return tensor;
    }
    if (VALUES.contains(name)) {
      return PickleMachine.NONE;
    }
    throw new IllegalArgumentException("a call of %s".formatted(name));
  }

  private static Map<String, Object> dict(List<?> arguments) {
    if (!arguments.isEmpty()) {
      throw new IllegalArgumentException("an OrderedDict that is made in an unknown way");
    }
    return new LinkedHashMap<>();
  }

  /**
   * The storage that a persistent id stands for: ("storage", type, key, device, elements), in old
   * files followed by a view (its key, first element, elements) or None.
   *
   * @throws IllegalArgumentException if it isn't one
   */
  TorchStorage storage(List<?> id) {
    if (id.size() < 5
        || !"storage".equals(id.getFirst())
        || !(id.get(1) instanceof Global(String type))
        || dtype(type).isEmpty()
        || !(id.get(2) instanceof String key)
        || !(id.get(4) instanceof Long elements)
        || elements < 0
        || elements > Long.MAX_VALUE / Double.BYTES) {
      throw new IllegalArgumentException("a persistent id that is no storage");
    }
    if (id.size() > 5 && !PickleMachine.NONE.equals(id.get(5))) {
      throw new IllegalArgumentException(
          "a view of a storage, as only early torch wrote; save the model with a newer one");
    }
    TorchStorage storage = new TorchStorage(key, dtype(type), elements);
    TorchStorage first = storages.putIfAbsent(key, storage);
    if (first != null && !first.equals(storage)) {
      throw new IllegalArgumentException(
          "storage %s both as %s and as %s"
              .formatted(StrictJson.shown(key), first.described(), storage.described()));
    }
    return storage;
  }
}
