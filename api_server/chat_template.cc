// SPDX-License-Identifier: Apache-2.0
#define PY_SSIZE_T_CLEAN
#include "api_server/chat_template.h"

#include <Python.h>

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "api_server/frame_tracer.h"
#include "base/check.h"
#include "base/log.h"

namespace sysone {
namespace {

// What Hugging Face's environment gives a template, in Jinja2's terms. Modules that Jinja2 or a filter would load at first
// use are loaded here, because nothing can be loaded once the doors are closed (see Doorkeeper).
constexpr char kPrelude[] = R"python(
import json, pprint, random, textwrap
from datetime import datetime
import jinja2, jinja2.constants, jinja2.debug, jinja2.ext, jinja2.sandbox

class GenerationBlock(jinja2.ext.Extension):
    # {% generation %} marks the assistant's text for training; in a prompt its body is simply written.
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_written"), [], [], body).set_lineno(line)

    def _written(self, caller):
        return caller()

class DictMaker:
    # dict(...) and dict.fromkeys(...) without the attributes of the real type.
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)

class PublicNamespace(jinja2.utils.Namespace):
    # namespace(...) that stores no name which could shadow Python's own. The instance is args[0], so that a
    # template may have a member called "self".
    def __init__(*args, **members):
        members = dict(*args[1:], **members)
        for name in members:
            refuse_underscore(name)
        jinja2.utils.Namespace.__init__(args[0], members)

    def __setitem__(self, name, value):
        refuse_underscore(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

def refuse_underscore(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace cannot store {name!r}: the name starts with '_'")

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def strftime_now(format):
    return datetime.now().strftime(format)

environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, dict=DictMaker(),
                           namespace=PublicNamespace)

def compile_template(text):
    try:
        return environment.from_string(text)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise jinja2.exceptions.TemplateError(f"line {error.lineno}: {error.message}") from None

def render(template, special_tokens, messages, kwargs, add_generation_prompt):
    variables = {**special_tokens, **json.loads(kwargs)}
    return template.render(messages=messages, tools=None, documents=None,
                           add_generation_prompt=add_generation_prompt, **variables)

# A first use of everything, for what is loaded only then (codecs, the rewriting of tracebacks).
render(compile_template("{{ 'warm' }}"), {}, [], "{}", True)
try:
    render(compile_template("{{ raise_exception('warm') }}"), {}, [], "{}", True)
except jinja2.exceptions.TemplateError:
    pass
)python";

// An owned reference. Only touched with the interpreter's lock held.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* object) : object_(object) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Holds the interpreter's lock; any thread, known to Python or not.
class Lock {
 public:
  Lock() : state_(PyGILState_Ensure()) {}
  ~Lock() { PyGILState_Release(state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const PyGILState_STATE state_;
};

Ref Text(const std::string& text) {
  return Ref(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"));
}

std::optional<std::string> Utf8(PyObject* object) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) return std::nullopt;
  return std::string(data, static_cast<size_t>(size));
}

// Takes the pending Python exception: "message" for a TemplateError, "TypeError: message" for others.
Status TakeException(Code code) {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  const Ref type_ref(type), value_ref(value), traceback_ref(traceback);
  if (!value_ref) return Status(Code::kInternal, "Python failed without an exception");
  const Ref text(PyObject_Str(value));
  std::optional<std::string> message = text ? Utf8(text.get()) : std::nullopt;
  PyErr_Clear();
  const char* name = Py_TYPE(value)->tp_name;
  if (PyErr_GivenExceptionMatches(value, PyExc_MemoryError)) code = Code::kInternal;
  if (const char* dot = std::strrchr(name, '.')) name = dot + 1;
  const bool own_words = std::strcmp(name, "TemplateError") == 0 && message;
  return Status(code,
                own_words ? *message : std::string(name) + ": " + message.value_or("no message"));
}

// Closes the doors behind the prelude: no file is opened, no module loaded, no process or socket made by Python any more,
// whatever a template finds.
int Doorkeeper(const char* event, PyObject*, void*) {
  constexpr std::string_view kRefused[] = {"open",    "import",  "os.",   "subprocess.", "socket.",
                                           "ctypes.", "shutil.", "glob.", "tempfile."};
  const std::string_view name(event);
  for (const std::string_view refused : kRefused) {
    const bool matches = refused.ends_with('.') ? name.starts_with(refused) : name == refused;
    if (!matches) continue;
    PyErr_Format(PyExc_PermissionError, "chat templates may not use '%s'", event);
    return -1;
  }
  return 0;
}

// CPython exists once in a process, so what the prelude made does too. Never taken down: threads may still render while the
// process ends.
struct Interpreter {
  Status status;
  PyObject* compile_template = nullptr;
  PyObject* render = nullptr;
  PyObject* trace = nullptr;
};

Status FromPyStatus(const PyStatus& status) {
  if (!PyStatus_Exception(status)) return {};
  return Error(Code::kInternal, "the embedded Python does not start: %s",
               status.err_msg != nullptr ? status.err_msg : "no reason given");
}

// Isolated: no environment variables, no user folders, no site start-up code, no signal handlers, no change of the
// process's locale, no .pyc files; modules come from the folders that the build found, and from nowhere else.
Status InitializePython() {
  PyPreConfig early;
  PyPreConfig_InitIsolatedConfig(&early);
  early.utf8_mode = 1;
  SYSONE_RETURN_IF_ERROR(FromPyStatus(Py_PreInitialize(&early)));

  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);
  config.site_import = 0;
  config.write_bytecode = 0;
  config.module_search_paths_set = 1;
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, SYSONE_PYTHON_PROGRAM);
  for (const wchar_t* folder :
       {L"" SYSONE_PYTHON_STDLIB, L"" SYSONE_PYTHON_DYNLOAD, L"" SYSONE_PYTHON_JINJA2})
    if (!PyStatus_Exception(status))
      status = PyWideStringList_Append(&config.module_search_paths, folder);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  return FromPyStatus(status);
}

Interpreter StartInterpreter() {
  Interpreter started;
  started.status = InitializePython();
  if (!started.status.ok()) return started;
  const Ref globals(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  PyDict_SetItemString(globals.get(), "__name__", Text("sysone_chat_template").get());
  Ref done(PyRun_String(kPrelude, Py_file_input, globals.get(), globals.get()));
  if (done)
    done = Ref(PyRun_String(FrameTracerSource(), Py_file_input, globals.get(), globals.get()));
  if (done) {
    started.compile_template = PyDict_GetItemString(globals.get(), "compile_template");
    started.render = PyDict_GetItemString(globals.get(), "render");
    started.trace = PyDict_GetItemString(globals.get(), "trace");
    for (PyObject* function : {started.compile_template, started.render, started.trace})
      Py_INCREF(function);
    if (PySys_AddAuditHook(Doorkeeper, nullptr) != 0)
      started.status = TakeException(Code::kInternal);
  } else {
    started.status = TakeException(Code::kInternal)
                         .WithContext("Jinja2 does not load (Debian package python3-jinja2)");
  }
  PyEval_SaveThread();  // from now on whoever needs Python takes the Lock
  return started;
}

const Interpreter& TheInterpreter() {
  static const Interpreter interpreter = StartInterpreter();
  return interpreter;
}

Ref MessageList(const std::vector<ChatMessage>& messages) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(messages.size())));
  if (!list) return {};
  for (size_t i = 0; i < messages.size(); ++i) {
    const Ref role = Text(messages[i].role), content = Text(messages[i].content);
    Ref message(PyDict_New());
    if (!role || !content || !message ||
        PyDict_SetItemString(message.get(), "role", role.get()) != 0 ||
        PyDict_SetItemString(message.get(), "content", content.get()) != 0)
      return {};
    Py_INCREF(message.get());  // the list takes this one
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), message.get());
  }
  return list;
}

Ref StringDict(const std::map<std::string, std::string>& strings) {
  Ref dict(PyDict_New());
  if (!dict) return {};
  for (const auto& [key, value] : strings) {
    const Ref text = Text(value);
    if (!text || PyDict_SetItemString(dict.get(), key.c_str(), text.get()) != 0) return {};
  }
  return dict;
}

Ref StringList(std::span<const std::string_view> strings) {
  Ref list(PyList_New(0));
  if (!list) return {};
  for (const std::string_view string : strings) {
    const Ref text = Text(std::string(string));
    if (!text || PyList_Append(list.get(), text.get()) != 0) return {};
  }
  return list;
}

// Contents that a template might treat in a way of its own.
constexpr std::string_view kProbes[] = {"plain",
                                        " white space at both ends \n",
                                        "\n\n\tlines\r\nand\u00a0more\u2003",
                                        "{{ 7 * 6 }}{% raw %}{# <b>&amp;'\"",
                                        "<|im_end|><think>x</think>",
                                        "<tool_response>x</tool_response>",
                                        "\u00fc\u4e2d\U0001F600",
                                        ""};

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  Ref compiled;
  Ref special_tokens;

  ~Impl() {
    const Lock lock;
    compiled = Ref();
    special_tokens = Ref();
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::Compile(
    const std::string& text, const std::map<std::string, std::string>& special_tokens) {
  if (text.empty())
    return Error(Code::kUnsupported,
                 "the checkpoint has no chat template (chat_template.jinja, 'chat_template' in "
                 "tokenizer_config.json, or tokenizer.chat_template in a GGUF file)");
  const Interpreter& python = TheInterpreter();
  SYSONE_RETURN_IF_ERROR(python.status);
  auto impl = std::make_unique<Impl>();
  impl->source = text;
  Status status;
  {
    const Lock lock;
    const Ref source = Text(text);
    if (source) impl->compiled = Ref(PyObject_CallOneArg(python.compile_template, source.get()));
    if (impl->compiled) impl->special_tokens = StringDict(special_tokens);
    if (!impl->special_tokens) status = TakeException(Code::kUnsupported);
  }
  if (!status.ok()) return status.WithContext("the chat template does not compile");
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::string> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                         const Json& kwargs, bool add_generation_prompt) const {
  SYSONE_CHECK(kwargs.is_object() || kwargs.is_null(), "template arguments are an object");
  const std::string kwargs_text = kwargs.is_null() ? "{}" : kwargs.Dump();
  const Lock lock;
  const Ref list = MessageList(messages);
  const Ref arguments = list ? Text(kwargs_text) : Ref();
  if (!arguments) return TakeException(Code::kInvalidArgument);
  const Ref rendered(PyObject_CallFunctionObjArgs(
      TheInterpreter().render, impl_->compiled.get(), impl_->special_tokens.get(), list.get(),
      arguments.get(), add_generation_prompt ? Py_True : Py_False, nullptr));
  if (!rendered) return TakeException(Code::kInvalidArgument);
  std::optional<std::string> text = Utf8(rendered.get());
  if (!text) return TakeException(Code::kInvalidArgument);
  return std::move(*text);
}

std::optional<PromptFrame> ChatTemplate::FindFrame(std::span<const std::string_view> roles,
                                                   const Json& kwargs) const {
  std::string trace;
  {
    const Lock lock;
    const Ref source = Text(impl_->source), role_list = StringList(roles),
              arguments = Text(kwargs.is_null() ? "{}" : kwargs.Dump());
    if (!source || !role_list || !arguments) {
      PyErr_Clear();
      return std::nullopt;
    }
    const Ref traced(PyObject_CallFunctionObjArgs(TheInterpreter().trace, source.get(),
                                                  impl_->special_tokens.get(), role_list.get(),
                                                  arguments.get(), Py_True, nullptr));
    if (traced) trace = Utf8(traced.get()).value_or("");
    PyErr_Clear();
  }
  const Result<Json> found = Json::Parse(trace);
  if (!found.ok()) return std::nullopt;
  std::optional<PromptFrame> frame = PromptFrame::FromTrace(*found, roles.size());
  if (!frame || !Confirmed(*frame, roles, kwargs)) return std::nullopt;
  return frame;
}

// The trace proves the frame; a look at real renderings guards the proof.
bool ChatTemplate::Confirmed(const PromptFrame& frame, std::span<const std::string_view> roles,
                             const Json& kwargs) const {
  for (size_t p = 0; p < std::size(kProbes); ++p) {
    std::vector<ChatMessage> messages;
    std::vector<std::string_view> contents;
    for (size_t m = 0; m < roles.size(); ++m) {
      contents.push_back(kProbes[(p + m) % std::size(kProbes)]);
      messages.push_back({std::string(roles[m]), std::string(contents.back())});
    }
    if (!frame.Fits(contents)) continue;
    std::string filled;
    frame.AppendHead(contents, filled);
    filled.append(contents.back()).append(frame.tail());
    const Result<std::string> rendered = Render(messages, kwargs, true);
    if (rendered.ok() && *rendered == filled) continue;
    SYSONE_WARNING("the chat template's frame does not hold for '%s'; every prompt is rendered",
                   std::string(contents.back()).c_str());
    return false;
  }
  return true;
}

}  // namespace sysone
